"""Which offsets of a segment the manifest covers already: the plan of an upload is what it does not cover yet."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from zlib import crc32

from awscrt.checksums import combine_crc32

from coldstream.errors import ContradictionError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset

PAGE_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class Coverage:
    """The entries that hold some of a span of offsets, in order, and the first that lies behind the span."""

    entries: tuple[FragmentEntry, ...]
    after: FragmentEntry | None = None

    def holds(self, first_offset: Offset, next_offset: Offset) -> bool:
        """Tell whether every offset of `first_offset` up to `next_offset` is in an entry."""
        reached = first_offset
        for entry in self.entries:
            if entry.first_offset > reached:
                return False
            reached = max(reached, entry.next_offset)
            if reached >= next_offset:
                return True
        return False

    def holder_of(self, header: ChunkHeader, *, source: str) -> FragmentEntry | None:
        """Return the entry that holds a chunk. Raises ContradictionError when one holds a part of it."""
        number = bisect_right(self.entries, int(header.chunk_id), key=lambda entry: int(entry.next_offset))
        if number == len(self.entries) or self.entries[number].first_offset >= header.next_offset:
            return None
        entry = self.entries[number]
        if entry.first_offset <= header.chunk_id and header.next_offset <= entry.next_offset:
            return entry
        raise ContradictionError(
            source,
            header.chunk_id,
            f"a chunk of offsets {header.chunk_id} to {header.next_offset - 1} straddles the border of {entry.key},"
            f" which holds {entry.first_offset} to {entry.next_offset - 1}",
        )

    def holds_just(self, first_offset: Offset, next_offset: Offset) -> bool:
        """Tell whether the entries are of these offsets, without a hole, and of no others."""
        borders = [first_offset, *(entry.next_offset for entry in self.entries)]
        starts = [*(entry.first_offset for entry in self.entries), next_offset]
        return borders == starts

    def segment_crc32(self) -> int | None:
        """Return the CRC-32 that a segment of just the chunks of all entries has; None where one's is not known."""
        combined: int | None = crc32(SEGMENT_HEADER)
        for entry in self.entries:
            if combined is None or entry.data_crc32 is None:
                return None
            combined = combine_crc32(combined, entry.data_crc32, entry.data_bytes)
        return combined


def read_coverage(
    table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset
) -> Coverage:
    """Read what the manifest holds of a span of offsets. Cost: one Query for every 100 entries."""
    entries: list[FragmentEntry] = []
    position = first_offset
    while True:
        page = table.log_from_offset(incarnation, position, PAGE_ENTRIES)
        entries.extend(entry for entry in page.entries if entry.first_offset < next_offset)
        after = next((entry for entry in page.entries if entry.first_offset >= next_offset), None)
        if page.head is not None or not page.entries or after is not None:
            return Coverage(tuple(entries), after)
        position = page.entries[-1].next_offset


def covered_to(table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Offset:
    """Return how far, from `first_offset` on and up to `next_offset`, the manifest covers a stream without a hole.

    That is `first_offset` where it does not hold even that. Cost: one GetItem; where the stream has gaps, two Queries
    more, at any size of the stream.
    """
    # The head is read first: what it calls archived stays so, and the gaps are those of then or of later.
    head = table.head(incarnation)
    if head is None or head.first_offset is None or head.next_offset is None:
        return first_offset
    if not head.first_offset <= first_offset < head.next_offset:
        return first_offset
    reached = head.next_offset
    if head.gaps:
        holder = next(iter(table.log_from_offset(incarnation, first_offset, 1).entries), None)
        if holder is None or holder.first_offset > first_offset:
            return first_offset
        gap = next(iter(table.gaps(incarnation, 1, from_offset=holder.next_offset)), None)
        if gap is not None:
            reached = gap.first_offset
    return min(reached, next_offset)
