"""The objects of the benchmark's S3 server, and its counts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass

from bench.s3_bodies import Arena, Body
from bench.s3_uploads import Uploads


class RefusedError(Exception):
    """A request whose answer is an S3 error. `closes`: its body was not read, so the connection cannot go on."""

    def __init__(self, status: int, code: str, *, closes: bool = False) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.closes = closes


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, which never changes. `crc32` is the checksum that its PUT carried; the time is in seconds."""

    body: Body
    etag: str
    crc32: str | None
    last_modified: float


class Store:
    """The objects by path, and counts of what was served."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.uploads = Uploads(arena)
        self.counts: Counter[str] = Counter()
        self._objects: dict[str, StoredObject] = {}
        self._lock = threading.Lock()
        self._etags = 0

    def get(self, path: str) -> StoredObject | None:
        """Return the object at a path."""
        return self._objects.get(path)

    def put(self, path: str, body: Body, crc32: str | None, *, new: bool = False) -> StoredObject:
        """Put an object. With `new`, refuse if there is one already."""
        with self._lock:
            if new and path in self._objects:
                raise RefusedError(412, "PreconditionFailed")
            self._etags += 1
            stored = StoredObject(body, f'"{self._etags:032x}"', crc32, time.time())
            self._objects[path] = stored
            return stored

    def keys(self, bucket_path: str, prefix: str) -> list[str]:
        """Return the keys of a bucket, `/bucket/`, that begin with a prefix, in order."""
        begins = bucket_path + prefix
        with self._lock:
            paths = [path for path in self._objects if path.startswith(begins)]
        return sorted(path.removeprefix(bucket_path) for path in paths)

    def delete(self, path: str) -> None:
        """Delete the object at a path, if there is one."""
        with self._lock:
            self._objects.pop(path, None)

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count."""
        with self._lock:
            self.counts[what] += number
