"""The positions of a group: of each partition the offset from which on it is not done, fenced by the owner's epoch.

A new owner first raises the epoch in the item, and reads from the offset that it finds there. From then on no earlier
owner can write it. An offset never goes back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from coldstream.errors import CorruptionError, LostRaceError, NotOwnerError
from coldstream.groups.group_items import POSITIONS, VERSION, content_of, source_of
from coldstream.groups.table_calls import TableCalls
from coldstream.manifest.state_item import StateItem
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.units import MAX_OFFSET, Offset

ATTEMPTS = 8
"""Of one commit. What comes between are commits of the same member, or of the owner before, which end by themselves."""

RAISED_AT_ONCE = 10
"""Epochs in one transaction."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """The offset from which on a partition is not done, None before the first commit; who may write it; its revision.

    Revision 0 is that of a partition without an item.
    """

    number: int
    epoch: int = 0
    offset: Offset | None = None
    revision: int = 0

    def to_item(self, partition: str) -> StateItem:
        """Encode it over the revision that it was read at."""
        content = {"version": VERSION, "epoch": self.epoch, "offset": self.offset}
        return StateItem(partition, position_key(self.number), self.revision + 1, json.dumps(content).encode())

    @classmethod
    def from_item(cls, item: StateItem) -> GroupPosition:
        """Decode it. Raises CorruptionError."""
        content = content_of(item)
        epoch, offset = content.get("epoch"), content.get("offset")
        number = item.key.removeprefix(POSITIONS)
        if not isinstance(epoch, int) or not number.isdecimal():
            raise CorruptionError(source_of(item), 0, "no position of a group")
        if offset is not None and not (isinstance(offset, int) and 0 <= offset <= MAX_OFFSET + 1):
            raise CorruptionError(source_of(item), 0, f"{offset!r} is no offset")
        return cls(int(number), epoch, None if offset is None else Offset(offset), item.revision)


def position_key(number: int) -> str:
    """Return the key of a partition's position."""
    return f"{POSITIONS}{number:04}"


def read_positions(table: ManifestReads, partition: str) -> dict[int, GroupPosition]:
    """Return all positions of a group, by number. Cost: one Query a page, of thousands. Raises CorruptionError."""
    items = table.state_items(partition, after=POSITIONS)
    found = map(GroupPosition.from_item, takewhile(lambda item: item.key.startswith(POSITIONS), items))
    return {one.number: one for one in found}


class GroupPositions:
    """Reads and writes the positions for one member. `group` names it in errors."""

    def __init__(self, table: ManifestTable, partition: str, group: str, *, calls: TableCalls) -> None:
        self._table = table
        self._partition = partition
        self._group = group
        self._calls = calls
        self._known: dict[int, GroupPosition] = {}

    async def raise_epochs(self, epochs: Mapping[int, int]) -> dict[int, Offset | None]:
        """Fence off every earlier owner of some partitions; return where each of them goes on.

        A partition that has a later owner by now is left out. Cost: one Query, and one transaction for ten partitions.
        Raises LostRaceError if an earlier owner committed in between: try again.
        """
        there = await self._calls(read_positions, self._table, self._partition)
        found = {number: there.get(number, GroupPosition(number)) for number in epochs}
        mine = {number: one for number, one in found.items() if one.epoch <= epochs[number]}
        # One whose epoch is there already was raised by a write whose answer got lost.
        older = [replace(one, epoch=epochs[number]) for number, one in mine.items() if one.epoch < epochs[number]]
        for first in range(0, len(older), RAISED_AT_ONCE):
            for raised in await self._write(older[first : first + RAISED_AT_ONCE]):
                mine[raised.number] = raised
        self._known |= mine
        return {number: one.offset for number, one in mine.items()}

    async def commit(self, number: int, epoch: int, offset: Offset) -> None:
        """Write an offset, as the owner of that epoch; one that is not greater changes nothing. Cost: one PUT.

        Raises NotOwnerError if there is a later owner; LostRaceError, UnavailableError, OutcomeUnknownError.
        """
        known = self._known.get(number)
        for attempt in range(ATTEMPTS):
            if known is None or attempt:
                item = await self._calls(self._table.state_item, self._partition, position_key(number))
                known = GroupPosition(number) if item is None else GroupPosition.from_item(item)
                self._known[number] = known
            if known.epoch > epoch:
                raise NotOwnerError(self._group, number)
            if known.offset is not None and offset <= known.offset:
                return
            try:
                (self._known[number],) = await self._write([replace(known, epoch=epoch, offset=offset)])
            except LostRaceError:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    async def committed(self) -> dict[int, Offset]:
        """Return what is committed, of every partition by number. Cost: one Query a page, of thousands."""
        there = await self._calls(read_positions, self._table, self._partition)
        return {number: one.offset for number, one in there.items() if one.offset is not None}

    async def _write(self, positions: Sequence[GroupPosition]) -> list[GroupPosition]:
        await self._calls(self._table.put_state, *(one.to_item(self._partition) for one in positions))
        return [replace(one, revision=one.revision + 1) for one in positions]
