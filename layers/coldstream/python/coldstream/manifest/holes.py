"""Holes: the offsets that no entry covers, from the floor to the first entry, between two, and after the last.

Of a deleted stream nothing is missing, and nothing below the floor is: it was removed on purpose.

They follow from the head and the gap items alone, at any size of the stream. Those may show half of a change, so never
release a copy because of them: walk the entries instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coldstream.manifest.entry import Gap, Head, Missing
from coldstream.manifest.missing import with_reason
from coldstream.units import MAX_OFFSET, Offset


def holes(
    head: Head | None, gaps: Iterable[Gap], missing: Sequence[Missing], first_offset: Offset, next_offset: Offset
) -> Iterator[Gap]:
    """Yield the holes in the offsets from `first_offset` up to `next_offset`, in order.

    `gaps` must include all gaps that overlap them. If `missing` explains only a part of a hole, the hole is yielded in
    pieces, each with a reason or with None.
    """
    for hole in _of_log(head, gaps):
        first, after = max(hole.first_offset, first_offset), min(hole.next_offset, next_offset)
        if first < after:
            yield from _pieces(first, after, missing)


def _of_log(head: Head | None, gaps: Iterable[Gap]) -> Iterator[Gap]:
    if head is not None and head.is_deleted:
        return
    floor = Offset(0) if head is None else head.floor
    if head is None or head.first_offset is None or head.next_offset is None:
        yield Gap(floor, Offset(MAX_OFFSET))
        return
    yield Gap(floor, head.first_offset)
    yield from sorted(gaps, key=lambda gap: gap.first_offset)
    yield Gap(head.next_offset, Offset(MAX_OFFSET))


def _pieces(first_offset: Offset, next_offset: Offset, missing: Sequence[Missing]) -> Iterator[Gap]:
    reached = first_offset
    for one in sorted(missing, key=lambda one: one.first_offset):
        first, after = max(one.first_offset, reached), min(one.next_offset, next_offset)
        if first < after:
            if reached < first:
                yield Gap(reached, first)
            yield with_reason(Gap(first, after), missing)
            reached = after
    if reached < next_offset:
        yield Gap(reached, next_offset)
