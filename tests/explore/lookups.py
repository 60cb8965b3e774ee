"""Lookups by the shipped resolver, and what they have to find: what reading all chunks finds."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.errors import StreamNotFoundError
from coldstream.manifest.entry import FragmentEntry, Gap
from coldstream.manifest.spec import LAST, NEXT, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.state import ManifestState
from coldstream.resolve.attach import attach
from coldstream.resolve.tail import Tail
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset, TimestampMs
from tests.explore.base import INCARNATION, STREAM, WholeChunk, chunks
from tests.support.weak import NOTHING, Found, found_at

OFFSETS = tuple(map(AtOffset, map(Offset, range(19))))
TIMES = tuple(AtTimestamp(TimestampMs(chunk.header.timestamp + plus)) for chunk in chunks() for plus in (-1, 0, 1))
STARTS: tuple[OffsetSpec, ...] = (AtEnd("first"), LAST, NEXT, *OFFSETS, *TIMES)

SOME_STARTS: tuple[OffsetSpec, ...] = (AtOffset(Offset(2)), TIMES[4], LAST, AtOffset(Offset(9)), TIMES[16], NEXT)
"""One of each kind, for lookups that others interrupt."""


def offsets_of(state: ManifestState) -> set[int]:
    """Return the offsets that the entries hold."""
    return {offset for one in state.entries.values() for offset in range(one.first_offset, one.next_offset)}


def chunks_of(entries: list[FragmentEntry]) -> list[WholeChunk]:
    """Return the chunks that entries hold."""
    return [
        chunk
        for chunk in chunks()
        if any(one.first_offset <= chunk.header.chunk_id < one.next_offset for one in entries)
    ]


def table_of(state: ManifestState) -> MemoryTable:
    """Return a table that holds a partition."""
    table = MemoryTable()
    table._partitions[INCARNATION] = state
    return table


def right(state: ManifestState, start: OffsetSpec) -> set[Found]:
    """Return what reading all chunks says of a start."""
    lost = {at for one in state.missing.values() for at in range(one.first_offset, one.next_offset)}
    found = {found_at(chunks_of(list(state.entries.values())), lost, start, state.head)}
    # Lookups that see no head do not know that the stream is deleted; the resolver asks for that before.
    return found | {NOTHING} if state.head is not None and state.head.is_deleted else found


def look_up(table: ManifestReads, start: OffsetSpec, place: Callable[[FragmentEntry, OffsetSpec], int]) -> Found:
    """Say where the resolver attaches; `place` says which chunk of an entry a start is in."""
    try:
        found = attach(table, STREAM, start, 3)
    except StreamNotFoundError:
        return NOTHING
    match found:
        case Gap():
            return "gap", int(found.first_offset), int(found.next_offset)
        case Tail(next_offset):
            return "tail", int(next_offset), 0
    if not isinstance(start, AtOffset | AtTimestamp):
        return "chunk", int(found.start.chunk_id), 0
    return "chunk", int(place(found.entries[0], start)), 0


def known_place(entry: FragmentEntry, start: OffsetSpec) -> int:
    """Return the chunk of an entry that a start is in, without the object, which may be gone by now."""
    held = [one.header for one in chunks_of([entry])]
    if isinstance(start, AtOffset):
        return max((one.chunk_id for one in held if one.chunk_id <= start.offset), default=held[0].chunk_id)
    assert isinstance(start, AtTimestamp)
    return next((one.chunk_id for one in held if one.timestamp >= start.timestamp), -1)
