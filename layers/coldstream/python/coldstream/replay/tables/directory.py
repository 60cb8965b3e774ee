"""The directory of a table: one of this machine, or a prefix of a bucket.

Names of files have slashes. A file appears whole or not at all: readers and interrupted runs never meet half of one.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import SEEK_END, BytesIO
from pathlib import Path
from shutil import rmtree
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit
from zlib import crc32

from coldstream.errors import InvalidQueryError, ObjectExistsError, ObjectNotFoundError
from coldstream.replay.tables.layout import MARKS
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB

MAX_MARK_BYTES = 16 * MIB
FORGOTTEN_S = 24 * 3600
"""Age from which a spool is deleted: the process that made it must have been killed."""

_SPOOL = "spool-"


class TableDirectory(Protocol):
    """The files of a table, by name."""

    def names(self, directory: str) -> list[str]:
        """Return the names of all files below a directory, which is empty or ends in a slash."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a small file. Raises ObjectNotFoundError."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write a small file unless it exists; return whether this call created it."""
        ...

    def spool(self) -> AbstractContextManager[Path]:
        """Return a directory, kept while a block runs, for files that are still being written."""
        ...

    def put(self, name: str, file: Path) -> None:
        """Move a file from the spool into the table, and replace the one of that name."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        ...


def open_directory(path: str) -> TableDirectory:
    """Return what a path names: `s3://bucket/prefix`, or a directory, which need not exist yet.

    Raises InvalidQueryError for another kind of URL.
    """
    parts = urlsplit(path)
    if parts.scheme in {"s3", "s3a"}:
        if not parts.netloc:
            raise InvalidQueryError("path", f"{path!r} names no bucket")
        from coldstream.store.objects import S3Objects  # noqa: PLC0415  # loads the SDK

        return BucketDirectory(S3Objects(parts.netloc), path.split("/", 3)[3] if parts.path else "")
    if "://" in path:
        raise InvalidQueryError("path", f"{path!r} is neither s3:// nor a directory")
    return LocalDirectory(Path(path))


class LocalDirectory:
    """Implement `TableDirectory` in a directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, directory: str) -> list[str]:
        """Return the names of all files below a directory."""
        return sorted(
            Path(above, name).relative_to(self._root).as_posix()
            for above, _, names in os.walk(self._root / directory)
            for name in names
        )

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError as err:
            raise ObjectNotFoundError(name) from err

    def create(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists."""
        with self.spool() as spool:
            written = spool / "mark"
            written.write_bytes(content)
            path = self._prepare(name, written)
            try:
                # A link is created with its content, or not at all, and never in the place of another.
                os.link(written, path)
            except FileExistsError:
                return False
        _sync(path.parent)
        return True

    @contextmanager
    def spool(self) -> Iterator[Path]:
        """Return a directory beside the marks, and delete those that killed processes have left.

        It is on the table's own file system: a rename across file systems would not be atomic.
        """
        marks = self._root / MARKS
        marks.mkdir(parents=True, exist_ok=True)
        for old in marks.glob(f"{_SPOOL}*"):
            with suppress(FileNotFoundError):
                if time.time() - old.stat().st_mtime > FORGOTTEN_S:
                    rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_SPOOL, dir=marks) as directory:
            yield Path(directory)

    def put(self, name: str, file: Path) -> None:
        """Move a file into the table."""
        path = self._prepare(name, file)
        file.replace(path)
        _sync(path.parent)

    def delete(self, name: str) -> None:
        """Delete a file."""
        (self._root / name).unlink(missing_ok=True)

    def _prepare(self, name: str, file: Path) -> Path:
        """Sync a file's bytes, and make the directory it goes to: a name must not survive a crash without its bytes."""
        with file.open("rb") as written:
            os.fsync(written.fileno())
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class BucketDirectory:
    """Implement `TableDirectory` below a prefix of a bucket."""

    def __init__(self, objects: ObjectStore, prefix: str = "") -> None:
        self._objects = objects
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def names(self, directory: str) -> list[str]:
        """Return the names of all objects below a directory. Cost: a listing for each thousand."""
        return [key.removeprefix(self._prefix) for key in self._objects.keys(f"{self._prefix}{directory}")]

    def read(self, name: str) -> bytes:
        """Return the content of an object. Cost: a GET."""
        return self._objects.get_whole(f"{self._prefix}{name}", MAX_MARK_BYTES)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless it exists. Cost: a PUT."""
        try:
            self._put_new(f"{self._prefix}{name}", BytesIO(content))
        except ObjectExistsError:
            return self.read(name) == content  # our own PUT, if it was sent twice because no answer came
        return True

    @contextmanager
    def spool(self) -> Iterator[Path]:
        """Return a temporary directory of this machine."""
        with tempfile.TemporaryDirectory(prefix=f"coldstream-{_SPOOL}") as directory:
            yield Path(directory)

    def put(self, name: str, file: Path) -> None:
        """Write an object. Cost: a PUT; if one exists, also a HEAD, and unless it is the same another PUT."""
        key = f"{self._prefix}{name}"
        with file.open("rb") as body:
            try:
                self._put_new(key, body)
            except ObjectExistsError:
                there = self._objects.info(key)
                if there is None or there.crc32 != _crc32(body) or there.size_bytes != body.seek(0, SEEK_END):
                    # Over it, in one request: a run that were killed after a delete would leave no file.
                    self._objects.put(key, file.read_bytes())
        file.unlink()

    def delete(self, name: str) -> None:
        """Delete an object."""
        self._objects.delete(f"{self._prefix}{name}")

    def _put_new(self, key: str, body: BinaryIO) -> None:
        checksum = _crc32(body)
        self._objects.put_new(key, body, size_bytes=body.seek(0, SEEK_END), crc32=checksum)


def _crc32(body: BinaryIO) -> int:
    body.seek(0)
    checksum = 0
    while piece := body.read(MIB):
        checksum = crc32(piece, checksum)
    return checksum


def _sync(directory: Path) -> None:
    """Sync a directory: its names have to survive a crash of the machine, too."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
