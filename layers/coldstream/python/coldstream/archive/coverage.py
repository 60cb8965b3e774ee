"""Which offsets of a segment the manifest covers already: the plan of an upload is what it does not cover yet."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from dataclasses import dataclass
from zlib import crc32

from coldstream.errors import ContradictionError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.units import Offset

PAGE_ENTRIES = 100

FIRST_ENTRIES = 4
MORE_ENTRIES = 1000

READS = 5
"""Of a place that shows half of a change."""

FIRST_DELAY_S = 0.02


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


def covered_to(table: ManifestReads, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Offset:
    """Return how far, from `first_offset` on and up to `next_offset`, the manifest covers a stream without a hole.

    That is `first_offset` where it does not hold even that. Only entries that were read count, each of which begins
    where the one before it ends, or earlier: what is released on this word is archived, for good. Where what is read
    shows half of a change, so that there may be more than that, it is read again, a few times.

    Cost: one Query where four entries reach the end of the span, and else one for each thousand entries more; in a long
    span of small fragments DynamoDB ends a page at a megabyte, some 1,000 of them.
    """
    walk = _Walk(first_offset)
    delay_s = FIRST_DELAY_S
    for _ in range(READS):
        if walk.go_on(table, incarnation, next_offset):
            break
        time.sleep(random.uniform(0, delay_s))  # noqa: S311  jitter, not a secret
        delay_s *= 2
    return min(walk.reached, next_offset)


@dataclass(slots=True)
class _Walk:
    """How far an unbroken chain of entries reaches."""

    reached: Offset

    def go_on(self, table: ManifestReads, incarnation: Incarnation, next_offset: Offset) -> bool:
        """Go on to the end of the chain, or past the next offset; return False where half of a change shows there."""
        limit = FIRST_ENTRIES
        while self.reached < next_offset:
            page = table.log_from_offset(incarnation, self.reached, limit)
            hole: FragmentEntry | None = None
            for entry in page.entries:
                if entry.first_offset > self.reached:
                    hole = hole or entry
                else:  # also past a hole: what a compaction made holds what it removed
                    self.reached = max(self.reached, entry.next_offset)
            if hole is not None and hole.first_offset > self.reached:
                return hole.prior_offset is None or hole.prior_offset <= self.reached
            if page.head is not None:
                return page.head.next_offset is None or page.head.next_offset <= self.reached
            if not page.entries:
                return True
            limit = MORE_ENTRIES
        return True
