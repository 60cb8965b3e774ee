"""Counts: how many messages there are, out of the manifest, without a byte of them.

An entry knows how many messages its fragment has. Only where a range ends within a fragment that has chunks without
messages as well, which take offsets, too, that part of it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.format.chunk import ChunkType
from coldstream.manifest.entry import FragmentEntry, Gap
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import EntryFrom, ScanSlice, iter_slice, plan_entries, slices_of
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class FragmentCount:
    """The messages of one fragment between two offsets, `first_offset` up to, not including, `next_offset`.

    There are `messages` of them, and those in `slices`, which have to be read. The times are those of the fragment's
    first and last chunk, whether or not these are counted.
    """

    first_offset: Offset
    next_offset: Offset
    first_timestamp: TimestampMs
    last_timestamp: TimestampMs
    messages: int
    slices: tuple[ScanSlice, ...] = ()


def plan_counts(
    table: ManifestReads, stream: StreamId, start: Offset, end: Offset, *, exactly: bool = False
) -> Iterator[FragmentCount | Gap]:
    """Yield the counts of what `plan_scan` reads, and the gaps, in order. Cost and errors are those of `plan_scan`."""
    for found in plan_entries(table, stream, start, end, exactly=exactly):
        yield found if isinstance(found, Gap) else _count(found, end)


def count_messages(objects: ObjectReads, slices: Iterable[ScanSlice]) -> int:
    """Count the messages in slices. Cost: a GET for each. Raises CorruptionError and what else `read_slice` does."""
    return sum(
        min(part.end, chunk.header.next_offset) - max(part.start, chunk.header.chunk_id)
        for part in slices
        for chunk in iter_slice(objects, part)
        if chunk.header.type is ChunkType.USER
    )


def _count(found: EntryFrom, end: Offset) -> FragmentCount:
    entry, first, last = found.entry, found.start, min(end, found.entry.next_offset)
    messages, slices = _messages_between(entry, first, last)
    return FragmentCount(first, last, entry.first_timestamp, entry.last_timestamp, messages, slices)


def _messages_between(entry: FragmentEntry, first: Offset, last: Offset) -> tuple[int, tuple[ScanSlice, ...]]:
    if (first, last) == (entry.first_offset, entry.next_offset):
        return entry.messages, ()
    if entry.messages == entry.records:
        return last - first, ()
    return 0, tuple(slices_of(entry, first, last))
