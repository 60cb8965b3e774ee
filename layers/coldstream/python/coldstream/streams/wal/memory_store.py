"""Write-ahead logs in memory: the double of the tests, and the WAL of streams that may be lost with their process."""

from __future__ import annotations

import threading
from collections.abc import MutableMapping, Sequence

from coldstream.errors import ObjectExistsError, ObjectNotFoundError
from coldstream.manifest.appender import WalKind, WalPlace, check_writer
from coldstream.units import ByteRange

MemoryWals = MutableMapping[tuple[str, int, int], bytes]
"""Objects by writer, epoch and sequence."""

_CREATE = threading.Lock()
"""One for all stores, for several may share their objects."""


class MemoryWalStore:
    """Implement `store.WalStore` in memory. Stores that share `wals` are the same one, seen by several processes.

    A real process has it for itself, for streams whose newest batches may be lost with it. `requests` counts the calls,
    by the name of the method.
    """

    def __init__(self, wals: MemoryWals | None = None) -> None:
        self.wals: MemoryWals = {} if wals is None else wals
        self.requests: dict[str, int] = {}
        self._begun: set[tuple[str, int]] = set()
        self._lock = threading.Lock()

    @property
    def kind(self) -> WalKind:
        """In memory."""
        return WalKind.MEMORY

    def is_here(self, place: WalPlace) -> bool:
        """Tell whether a WAL was written in this memory."""
        at = (place.writer, place.epoch)
        return place.kind is self.kind and (at in self._begun or any(key[:2] == at for key in tuple(self.wals)))

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        """Write an object that is not there yet."""
        self._count("create")
        with _CREATE:
            if _at(place, sequence) in self.wals:
                raise ObjectExistsError(f"{place}/{sequence}")
            self.wals[_at(place, sequence)] = body
            self._begun.add((place.writer, place.epoch))

    def sequences(self, place: WalPlace) -> Sequence[int]:
        """Return the sequences that are there."""
        self._count("sequences")
        return [at for writer, epoch, at in tuple(self.wals) if (writer, epoch) == (place.writer, place.epoch)]

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
        """Read an object, or a range of it."""
        self._count("read")
        try:
            body = self.wals[_at(place, sequence)]
        except KeyError:
            raise ObjectNotFoundError(f"{place}/{sequence}") from None
        return body if byte_range is None else body[byte_range.start : byte_range.end]

    def delete(self, place: WalPlace, sequences: Sequence[int]) -> None:
        """Delete objects."""
        self._count("delete")
        for sequence in sequences:
            self.wals.pop(_at(place, sequence), None)

    def epochs(self, writer: str) -> Sequence[int]:
        """Return the epochs of which a writer has objects."""
        check_writer(writer)
        self._count("epochs")
        return list({epoch for name, epoch, _ in tuple(self.wals) if name == writer})

    def _count(self, call: str) -> None:
        with self._lock:
            self.requests[call] = self.requests.get(call, 0) + 1


def _at(place: WalPlace, sequence: int) -> tuple[str, int, int]:
    return place.writer, place.epoch, sequence
