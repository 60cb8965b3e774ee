"""`WalDirectory`: which chunks are where in a write-ahead log, compact enough to be kept for all of its streams."""

from __future__ import annotations

from array import array
from collections.abc import Collection

from coldstream.manifest.stream import Incarnation
from coldstream.store.wal_object import WalEntry
from coldstream.units import ByteRange, Epoch, Offset

_FIELDS = 4


class WalDirectory:
    """The entries of a WAL's objects below `next`, by the stream and its opening, `size` of them.

    Memory: 32 bytes an entry.
    """

    def __init__(self) -> None:
        self.next = 0
        self.size = 0
        # Of each entry: sequence, first offset, next offset, and position and length as one number.
        self._entries: dict[tuple[Incarnation, Epoch], array[int]] = {}

    def add(self, sequence: int, entries: tuple[WalEntry, ...]) -> None:
        """Add the entries of an object; objects come in order."""
        for one in entries:
            numbers = self._entries.get((one.incarnation, one.epoch))
            if numbers is None:
                numbers = self._entries[one.incarnation, one.epoch] = array("Q")
            place = one.byte_range.start << 32 | len(one.byte_range)
            numbers.extend((sequence, one.first_offset, one.next_offset, place))
        self.size += len(entries)

    def keep(self, sequences: Collection[int]) -> None:
        """Drop the entries of all other objects."""
        for opening, numbers in tuple(self._entries.items()):
            gone = {at for at in numbers[::_FIELDS] if at not in sequences}
            if not gone:
                continue
            rows = (numbers[at : at + _FIELDS] for at in range(0, len(numbers), _FIELDS) if numbers[at] not in gone)
            kept = self._entries[opening] = array("Q")
            for row in rows:
                kept.extend(row)
            self.size -= (len(numbers) - len(kept)) // _FIELDS
            if not kept:
                del self._entries[opening]

    def entries(self, incarnation: Incarnation, epoch: Epoch, end: int) -> list[tuple[int, WalEntry]]:
        """Return the entries of one opening in objects below `end`, with their sequences, in order."""
        numbers = self._entries.get((incarnation, epoch), array("Q"))
        found: list[tuple[int, WalEntry]] = []
        for at in range(0, len(numbers), _FIELDS):
            sequence, first, following, place = numbers[at : at + _FIELDS]
            if sequence < end:
                start, length = place >> 32, place & 0xFFFF_FFFF
                byte_range = ByteRange(start, start + length)
                found.append((sequence, WalEntry(incarnation, epoch, Offset(first), Offset(following), byte_range)))
        return found
