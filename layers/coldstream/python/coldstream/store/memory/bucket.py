"""The state of the in-memory bucket: objects, what S3 keeps beside their bytes, and the versions before them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from threading import RLock
from zlib import crc32 as crc32_of

from coldstream.errors import BadCrcError, NotRestoredError, ObjectExistsError, ObjectNotFoundError, ReplacedError
from coldstream.store.object_values import ARCHIVED_CLASSES, RestoreState
from coldstream.units import TimestampMs

PAGE = 1000
"""Keys that S3 lists, or deletes, by one request."""

UNVERSIONED = "null"
"""The version id of an object in a bucket that keeps no versions."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object. `data` is None for a delete marker."""

    data: bytes | None
    version_id: str
    last_modified: TimestampMs
    storage_class: str | None = None
    legal_hold: bool = False
    restore: RestoreState | None = None
    note: str | None = None

    @property
    def etag(self) -> str:
        """The ETag; a delete marker has none."""
        return "" if self.data is None else etag_of(self.data)

    @property
    def is_readable(self) -> bool:
        """Tell whether nobody has to restore it first."""
        return self.storage_class not in ARCHIVED_CLASSES or (self.restore is not None and self.restore.is_readable)


class MemoryBucket:
    """Hold the objects of a bucket.

    `objects` are the bytes by key. Tests may write to it, as if somebody had damaged the bucket: an object whose bytes
    were put there counts as written when it is first looked at. `clock` is AWS's clock.
    """

    def __init__(
        self,
        bucket: str = "memory",
        *,
        versioned: bool = False,
        object_lock: bool = False,
        clock: Callable[[], TimestampMs] | None = None,
    ) -> None:
        self.requests: Counter[str] = Counter()
        self.objects: dict[str, bytes] = {}
        self.clock = clock or _now
        self._bucket = bucket
        self._object_lock = object_lock
        self._versioned = versioned or object_lock  # S3 locks versions, so it needs them
        self._latest: dict[str, Version] = {}
        self._earlier: dict[str, list[Version]] = {}  # newest first; a delete marker may be the newest of all
        self._ids = count(1)
        self._lock = RLock()

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._bucket

    def _version(self, key: str) -> Version:
        """Return the latest version. Raises ObjectNotFoundError."""
        with self._lock:
            try:
                data = self.objects[key]
            except KeyError:
                raise ObjectNotFoundError(key) from None
            known = self._latest.get(key)
            if known is None or known.data is not data:
                known = self._latest[key] = Version(data, self._new_id(), self.clock())
            return known

    def _read(self, call: str, key: str, if_match: str | None, *, bytes_too: bool = True) -> Version:
        """Count a call, and return the object that it reads."""
        self._count(call)
        found = self._version(key)
        if if_match not in {None, found.etag}:
            raise ReplacedError(call, key)
        if bytes_too and not found.is_readable:
            raise NotRestoredError(key, found.storage_class or "STANDARD")
        return found

    def _write(
        self,
        key: str,
        data: bytes,
        *,
        storage_class: str | None = None,
        legal_hold: bool = False,
        note: str | None = None,
    ) -> None:
        """Write an object, over the one at the key."""
        with self._lock:
            if self._versioned and key in self.objects:
                self._earlier.setdefault(key, []).insert(0, self._version(key))
            self.objects[key] = data
            self._latest[key] = Version(data, self._new_id(), self.clock(), storage_class, legal_hold, note=note)

    def _write_new(self, key: str, data: bytes, *, note: str | None = None) -> None:
        # Under the lock, as S3 does it: of two writers of one key, only one may find it free.
        with self._lock:
            if key in self.objects:
                raise ObjectExistsError(key)
            self._write(key, data, note=note)

    def _change(self, key: str, **changes: object) -> None:
        """Change what is kept beside the bytes of the latest version."""
        with self._lock:
            self._latest[key] = replace(self._version(key), **changes)  # type: ignore[arg-type]  # by name

    def _remove(self, key: str) -> None:
        """Delete an object; with versions, put a delete marker on it."""
        with self._lock:
            if self._versioned:
                earlier = self._earlier.setdefault(key, [])
                if key in self.objects:
                    earlier.insert(0, self._version(key))
                earlier.insert(0, Version(None, self._new_id(), self.clock()))
            self.objects.pop(key, None)
            self._latest.pop(key, None)

    def _new_id(self) -> str:
        return f"version-{next(self._ids)}" if self._versioned else UNVERSIONED

    def _count(self, call: str, times: int = 1) -> None:
        with self._lock:
            self.requests[call] += times


def etag_of(data: bytes) -> str:
    """Return the ETag of an object of these bytes."""
    return f'"{sha256(data).hexdigest()[:32]}"'


def check_crc32(key: str, data: bytes, crc32: int) -> None:
    """Raise BadCrcError unless the bytes are of that CRC-32."""
    if (found := crc32_of(data)) != crc32:
        raise BadCrcError(key, 0, "CRC-32 of the bytes sent", expected=f"{crc32:08x}", found=f"{found:08x}")


def _now() -> TimestampMs:
    return TimestampMs(time.time_ns() // 1_000_000)
