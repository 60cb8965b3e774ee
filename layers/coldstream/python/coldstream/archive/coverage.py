"""The coverage of a segment: which of its offsets the manifest holds, or held. An upload archives what is left.

What was removed from the archive counts as covered, for good: offsets below the head's floor, and all of a stream that
was deleted. Otherwise the event of a copy that comes late, or again, would bring it back. While a deletion can be
undone, uploads archive nothing, and agents keep what is not archived (`covered_to`).
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

from coldstream.errors import ContradictionError, LostRaceError
from coldstream.format.checksum import combine_crc32
from coldstream.format.chunk import ChunkHeader
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.stream import Incarnation
from coldstream.retry import retrying
from coldstream.store.log import iter_pages
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.units import Offset

PAGE_ENTRIES = 100

FIRST_ENTRIES = 4
MORE_ENTRIES = 1000
"""Entries that `covered_to` reads first, as a segment rarely has more, and then at a time."""

READS = 5
"""How often `covered_to` reads a place of the log that shows half of a change."""

FIRST_DELAY_S = 0.02
MAX_DELAY_S = 0.16


@dataclass(frozen=True, slots=True)
class Coverage:
    """The entries that hold any offset of a span, in order, and the first entry that lies after the span.

    `head` was read after them, None if the manifest does not know the stream.
    """

    entries: tuple[FragmentEntry, ...]
    after: FragmentEntry | None = None
    head: Head | None = None

    @property
    def floor(self) -> Offset:
        """The offset below which everything was removed."""
        return Offset(0) if self.head is None else self.head.floor

    @property
    def generation(self) -> int:
        """The least generation that a new entry may have."""
        return 0 if self.head is None else self.head.generation

    def is_removed(self, next_offset: Offset) -> bool:
        """Tell whether everything up to `next_offset` was removed, so that nothing of it may be archived again."""
        return self.head is not None and (self.head.is_deleted or next_offset <= self.head.floor)

    def holds(self, first_offset: Offset, next_offset: Offset) -> bool:
        """Tell whether every offset from `first_offset` up to `next_offset` is in an entry, or was removed."""
        reached = max(first_offset, self.floor)
        if reached >= next_offset:
            return True
        for entry in self.entries:
            if entry.first_offset > reached:
                return False
            reached = max(reached, entry.next_offset)
            if reached >= next_offset:
                return True
        return False

    def covers(self, header: ChunkHeader, *, source: str) -> bool:
        """Tell whether a chunk is in an entry, or was removed.

        Raises ContradictionError if that is so of a part of it. What was removed ended with a chunk, so a chunk that
        goes on after that is of another history.
        """
        if header.chunk_id < self.floor < header.next_offset:
            raise ContradictionError(
                source,
                header.chunk_id,
                f"its chunk of offsets {header.chunk_id} to {header.next_offset - 1} straddles {self.floor}, below"
                " which everything was removed from the archive",
            )
        return header.next_offset <= self.floor or self.holder_of(header, source=source) is not None

    def holder_of(self, header: ChunkHeader, *, source: str) -> FragmentEntry | None:
        """Return the entry that holds a chunk, if any. Raises ContradictionError if an entry holds a part of it."""
        number = bisect_right(self.entries, int(header.chunk_id), key=lambda entry: int(entry.next_offset))
        if number == len(self.entries) or self.entries[number].first_offset >= header.next_offset:
            return None
        entry = self.entries[number]
        if entry.first_offset <= header.chunk_id and header.next_offset <= entry.next_offset:
            return entry
        raise ContradictionError(
            source,
            header.chunk_id,
            f"its chunk of offsets {header.chunk_id} to {header.next_offset - 1} straddles the border of {entry.key},"
            f" which holds {entry.first_offset} to {entry.next_offset - 1}",
        )

    def holds_just(self, first_offset: Offset, next_offset: Offset) -> bool:
        """Tell whether the entries hold exactly these offsets: without a hole, an overlap, or any other offset."""
        borders = [first_offset, *(entry.next_offset for entry in self.entries)]
        starts = [*(entry.first_offset for entry in self.entries), next_offset]
        return borders == starts

    def segment_crc32(self) -> int | None:
        """Return the CRC-32 of a segment made of exactly the entries' chunks, None if that of any is unknown.

        It is unknown of an erased entry, too, which has the CRC-32 of what erasure left.
        """
        combined = crc32(SEGMENT_HEADER)
        for entry in self.entries:
            if entry.data_crc32 is None or entry.erased:
                return None
            combined = combine_crc32(combined, entry.data_crc32, entry.data_bytes)
        return combined


def read_coverage(
    table: ManifestTable, incarnation: Incarnation, first_offset: Offset, next_offset: Offset
) -> Coverage:
    """Read what the manifest holds of a span of offsets. Cost: one Query for every 100 entries, and a GetItem.

    The GetItem is for the head, if no Query shows it.
    """
    entries: list[FragmentEntry] = []
    after: FragmentEntry | None = None
    head: Head | None = None
    for page in iter_pages(table, incarnation, first_offset, PAGE_ENTRIES):
        # The whole page counts, also after the first entry that lies after the span: a merged entry that reaches back
        # into the span comes after the small ones that it replaces.
        entries.extend(entry for entry in page.entries if entry.first_offset < next_offset)
        after = next((entry for entry in page.entries if entry.first_offset >= next_offset), None)
        head = page.head
        if after is not None:
            break
    # The head comes last. Read before the entries, it could have a floor below entries that are gone by now: these
    # offsets would seem to be neither held nor removed, and be archived in vain.
    return Coverage(tuple(entries), after, head or (table.head(incarnation) if entries or after else None))


def covered_to(table: ManifestReads, incarnation: Incarnation, first_offset: Offset, next_offset: Offset) -> Offset:
    """Return how far the manifest covers a stream without a hole, from `first_offset` on, `next_offset` at most.

    The answer is `first_offset` if the manifest does not hold even that. Only entries that were read count, each of
    which begins at or before the end of the one before, and what a head says was removed: all below its floor, and all
    of a deleted stream whose purge has begun. So agents may release what this covers: it is archived, or was removed,
    for good. Of a stream that may still be undeleted they keep what is not archived. If the log
    shows half of a change, and may therefore cover more, it is read again, a few times.

    Cost: one Query if four entries reach the end of the span, else one more for each thousand entries; a GetItem if
    they end before it and do not show the head.
    """
    chain = _Chain(first_offset)
    repeated = retrying(LostRaceError, attempts=READS, first_delay_s=FIRST_DELAY_S, max_delay_s=MAX_DELAY_S)
    # After the last attempt the answer may be too small, which costs the agent another question. It is never too great.
    with suppress(LostRaceError):
        repeated(lambda: chain.extend(table, incarnation, next_offset))
    return min(chain.reached, next_offset)


@dataclass(slots=True)
class _Chain:
    """An unbroken chain of entries that were read, up to the offset `reached`. It only ever grows."""

    reached: Offset

    def extend(self, table: ManifestReads, incarnation: Incarnation, next_offset: Offset) -> None:
        """Follow the chain to its end or past `next_offset`. Raises LostRaceError if its end shows half of a change."""
        limit = FIRST_ENTRIES
        while self.reached < next_offset:
            # Not `iter_pages`: each page begins where the chain ends, so that entries after a hole are read again if a
            # later entry closes it.
            page = table.log_from_offset(incarnation, self.reached, limit)
            hole: FragmentEntry | None = None
            for entry in page.entries:
                if entry.first_offset > self.reached:
                    hole = hole or entry
                else:  # also after a hole: a merged entry holds the offsets of the entries that it replaced
                    self.reached = max(self.reached, entry.next_offset)
            is_at_hole = hole is not None and hole.first_offset > self.reached
            if not (is_at_hole or page.head is not None or not page.entries):
                limit = MORE_ENTRIES
                continue
            # The chain ends here. What comes next may have been removed, which no entry shows.
            head = page.head or (table.head(incarnation) if page.entries else None)
            if head is not None and self._pass_removed(head, next_offset):
                continue
            if is_at_hole:
                assert hole is not None
                # Only the entry's own link proves the hole. A link to an offset past the chain's end names an entry
                # that exists and did not show.
                self._check(hole.prior_offset, hole.first_offset)
            elif head is not None:
                self._check(head.next_offset, head.next_offset)
            return

    def _pass_removed(self, head: Head, next_offset: Offset) -> bool:
        """Extend the chain over what the head says was removed; return whether that is more than was reached."""
        is_gone = head.is_deleted and not head.can_be_undeleted
        removed_to = next_offset if is_gone else head.floor
        if removed_to <= self.reached:
            return False
        self.reached = removed_to
        return True

    def _check(self, covered_to: Offset | None, position: Offset | None) -> None:
        """Raise LostRaceError if the log ought to show entries up to `covered_to`, past the end of the chain."""
        if covered_to is not None and covered_to > self.reached:
            raise LostRaceError(f"the log shows half of a change between offsets {self.reached} and {position}")
