"""Write-ahead logs on a local disk: durable once it has them, and lost with it.

    <directory>/lock                             held by the process that has the directory
                <writer>/<epoch>/                a WAL: it stays when its objects are deleted
                <writer>/<epoch>/<sequence>      objects, ten and twenty digits
                <writer>/<epoch>/.<random>       objects that are being written

Each directory is synced into the one above before there is anything in it. An object is synced before it gets its name,
and its directory after that. What is left of a WAL that was closed, an empty directory, tells that it was here, and
that nothing of it is lost. A copy of the directory would tell the same, and be wrong: never let two exist.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from coldstream.errors import (
    InvalidSettingError,
    ObjectExistsError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.manifest.appender import WalKind, WalPlace, check_writer
from coldstream.units import ByteRange


class DiskWalStore:
    """Implement `store.WalStore` in `directory`, which is created. One process has it until `close`, or its end.

    Raises InvalidSettingError if another one has it, or it cannot be written to.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory = directory.absolute()
        # Directories that are durable.
        self._made: set[Path] = set()
        self._making = threading.RLock()
        try:
            self._make(directory)
            # Never removed: a process could otherwise lock the old file while another locks a new one.
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise InvalidSettingError("wal", f"{directory} cannot be written to: {err.strerror}") from err
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for unfinished in directory.glob("*/*/.*"):
                unfinished.unlink()
        except BlockingIOError as err:
            os.close(self._lock)
            raise InvalidSettingError("wal", f"another process has {directory}") from err
        except OSError as err:
            os.close(self._lock)
            raise InvalidSettingError("wal", f"{directory} cannot be written to: {err.strerror}") from err

    @property
    def kind(self) -> WalKind:
        """On a disk."""
        return WalKind.DISK

    def is_here(self, place: WalPlace) -> bool:
        """Tell whether a WAL was written in this directory: its own is there, empty or not."""
        directory = self._path(place, 0).parent
        with _border(directory):
            return place.kind is self.kind and directory.is_dir()

    def close(self) -> None:
        """Let another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        """Write an object that is not there yet: to a file of another name, which then gets this one, if it is free."""
        path = self._path(place, sequence)
        try:
            with _border(path):
                self._make(path.parent)
                self._link(path, body)
        except FileNotFoundError as err:
            self._made.clear()
            raise UnavailableError(f"somebody else removed {path.parent}") from err
        try:
            _sync(path.parent)
        except OSError as err:
            raise OutcomeUnknownError(f"{path} is written, but its directory is not: {err.strerror}") from err

    def sequences(self, place: WalPlace) -> Sequence[int]:
        """Return the sequences that are there."""
        return _numbers(self._path(place, 0).parent)

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
        """Read an object, or a range of it."""
        path = self._path(place, sequence)
        try:
            with _border(path), path.open("rb") as file:
                if byte_range is None:
                    return file.read()
                file.seek(byte_range.start)
                return file.read(len(byte_range))
        except FileNotFoundError as err:
            raise ObjectNotFoundError(str(path)) from err

    def delete(self, place: WalPlace, sequences: Sequence[int]) -> None:
        """Delete objects."""
        directory = self._path(place, 0).parent
        with suppress(FileNotFoundError), _border(directory):
            for sequence in sequences:
                self._path(place, sequence).unlink(missing_ok=True)
            _sync(directory)

    def epochs(self, writer: str) -> Sequence[int]:
        """Return the epochs of which a writer has objects, or had some."""
        check_writer(writer)
        return _numbers(self._directory / writer)

    def _make(self, directory: Path) -> None:
        """Make a directory, and those above it. Each is synced into the one above once in the life of this store.

        That it is there proves nothing: the sync may have failed the time before.
        """
        if directory in self._made:
            return
        with self._making:
            if not directory.parent.is_dir() or directory.parent.is_relative_to(self._directory):
                self._make(directory.parent)
            directory.mkdir(exist_ok=True)
            _sync(directory.parent)
            self._made.add(directory)

    def _link(self, path: Path, body: bytes) -> None:
        unfinished = path.with_name(f".{secrets.token_hex(8)}")
        try:
            _write(unfinished, body)
            os.link(unfinished, path)
        except FileExistsError as err:
            # It may be this very object, of an attempt that failed to sync the directory: then it counts from now.
            _sync(path.parent)
            raise ObjectExistsError(str(path)) from err
        finally:
            unfinished.unlink(missing_ok=True)

    def _path(self, place: WalPlace, sequence: int) -> Path:
        return self._directory / place.writer / f"{place.epoch:010}" / f"{sequence:020}"


def _write(path: Path, body: bytes) -> None:
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _numbers(directory: Path) -> list[int]:
    try:
        with _border(directory):
            return [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return []


@contextmanager
def _border(path: Path) -> Iterator[None]:
    """Turn the disk's errors into ours, but for one that says that a file is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as err:
        raise UnavailableError(f"{path}: {err.strerror}") from err
