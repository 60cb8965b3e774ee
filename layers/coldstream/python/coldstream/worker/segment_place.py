"""Where exported segments go: a directory of this machine, or a prefix of a bucket.

A file is there whole or not at all, and none is ever replaced. One of the same name and content is ours, written by an
attempt that died before it could say so; any other is somebody else's, and an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from zlib import crc32

from coldstream.errors import InvalidInputError, ObjectExistsError
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.multipart import send
from coldstream.ingest.slice import SegmentSlice
from coldstream.replay.tables.directory import FORGOTTEN_S
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB, Offset

_SPOOL = ".coldstream-export-"


class SegmentPlace(Protocol):
    """Takes files of one stream after another."""

    def spool(self) -> AbstractContextManager[str]:
        """Return a directory, kept while a block runs, for a file that is being written."""
        ...

    def publish(self, name: str, file: Path) -> None:
        """Put a file there. Raises InvalidInputError if another one has its name."""
        ...


def open_place(path: str) -> SegmentPlace:
    """Return what a path names: `s3://bucket/prefix`, or a directory, even a new one. Raises InvalidInputError."""
    parts = urlsplit(path)
    if parts.scheme in {"s3", "s3a"}:
        if not parts.netloc:
            raise InvalidInputError("destination", f"{path[:200]!r} names no bucket")
        from coldstream.store.objects import S3Objects  # noqa: PLC0415  # loads the SDK

        return BucketPlace(S3Objects(parts.netloc), parts.path.strip("/"))
    if "://" in path:
        raise InvalidInputError("destination", f"{path[:200]!r} is neither s3:// nor a directory")
    return DirectoryPlace(Path(path))


class DirectoryPlace:
    """Implement `SegmentPlace` in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def spool(self) -> AbstractContextManager[str]:
        """Return a directory below the root, so that a file is moved and never copied; delete forgotten ones."""
        self._root.mkdir(parents=True, exist_ok=True)
        for old in self._root.glob(f"{_SPOOL}*"):
            with suppress(FileNotFoundError):
                if time.time() - old.stat().st_mtime > FORGOTTEN_S:
                    shutil.rmtree(old, ignore_errors=True)
        return tempfile.TemporaryDirectory(prefix=_SPOOL, dir=self._root)

    def publish(self, name: str, file: Path) -> None:
        """Link a file to its name: unlike a rename, that never takes the place of another."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as written:
            os.fsync(written.fileno())
        try:
            os.link(file, path)
        except FileExistsError:
            if _sum(path) != _sum(file):
                raise _foreign(str(path)) from None
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class BucketPlace:
    """Implement `SegmentPlace` below a prefix of a bucket; large files go there in parts."""

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        self._objects = objects
        self._prefix = f"{prefix}/" if prefix else ""

    def spool(self) -> AbstractContextManager[str]:
        """Return a temporary directory of this machine."""
        return tempfile.TemporaryDirectory(prefix=_SPOOL)

    def publish(self, name: str, file: Path) -> None:
        """Send a file, unless an object has its key. Cost: a PUT, or those of a multipart upload."""
        key, size_bytes = self._prefix + name, file.stat().st_size
        try:
            if name.endswith(".segment"):
                # Its own header and all that follows: the whole file, read once and in order.
                whole = SegmentSlice(file, Offset(0), Offset(1), SEGMENT_HEADER_BYTES, size_bytes)
                send(whole, key, self._objects, lambda _: None)
            else:
                checksum = _sum(file)[1]
                with file.open("rb") as body:
                    self._objects.put_new(key, body, size_bytes=size_bytes, crc32=checksum)
        except ObjectExistsError:
            there = self._objects.info(key)
            if there is None or (there.size_bytes, there.crc32) != _sum(file):
                raise _foreign(key) from None


def _foreign(name: str) -> InvalidInputError:
    return InvalidInputError("destination", f"{name} is there with another content; it is not replaced")


def _sum(file: Path) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file."""
    size_bytes = checksum = 0
    with file.open("rb") as body:
        while piece := body.read(MIB):
            size_bytes += len(piece)
            checksum = crc32(piece, checksum)
    return size_bytes, checksum
