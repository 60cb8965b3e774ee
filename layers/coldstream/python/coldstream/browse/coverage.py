"""What there is of every offset of a stream: removed, archived, missing or still at the broker, in order, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coldstream.browse.spans import BrokerOffsets, SpanKind, TimelineSpan
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.missing import with_reason
from coldstream.store.ports import StreamOverview
from coldstream.units import Offset

GONE_AT_BROKER = "neither the archive nor the broker has them"


def end_of(overview: StreamOverview, head: Head, broker: BrokerOffsets | None) -> Offset:
    """Return the offset after the last one that anything is known of."""
    known = [head.next_offset or head.floor, *(one.next_offset for one in overview.missing)]
    if broker is not None and broker.next_offset is not None:
        known.append(broker.next_offset)
    return max(known)


def coverage_before(overview: StreamOverview, head: Head) -> Iterator[TimelineSpan]:
    """Yield what is below the first archived offset: what was removed, and what the archive began without."""
    if head.floor:
        yield TimelineSpan(SpanKind.REMOVED, Offset(0), head.floor)
    first = head.first_offset
    if first is not None and first > head.floor:
        yield _gap(with_reason(Gap(head.floor, first), overview.missing))


def coverage_from_first(
    overview: StreamOverview, head: Head, broker: BrokerOffsets | None, end: Offset
) -> Iterator[TimelineSpan]:
    """Yield what is from the first archived offset up to `end`: archived and missing in turn, then what is past it."""
    at = tail = head.next_offset if head.next_offset is not None else head.floor
    if head.first_offset is not None:
        at = head.first_offset
        unread_to = overview.gaps_from
        if unread_to is not None and unread_to > at:
            at = min(unread_to, tail)
            yield TimelineSpan(SpanKind.UNREAD, head.first_offset, at)
        # An item that contradicts the head, because it is just being changed, is cut to what is left of it.
        for gap in overview.gaps:
            if gap.first_offset < at or gap.next_offset > tail:
                continue
            if gap.first_offset > at:
                yield TimelineSpan(SpanKind.ARCHIVED, at, gap.first_offset)
            yield _gap(gap)
            at = gap.next_offset
        if at < tail:
            yield TimelineSpan(SpanKind.ARCHIVED, at, tail)
    yield from _past_tail(overview, broker, tail, end)


def _past_tail(
    overview: StreamOverview, broker: BrokerOffsets | None, tail: Offset, end: Offset
) -> Iterator[TimelineSpan]:
    """Yield what is known to be lost past the tail, and between that what the broker has, or may have."""
    at = tail
    missing = _joined((one.first_offset, one.next_offset) for one in overview.missing if one.next_offset > tail)
    for first, following in (*missing, (end, end)):
        yield from _not_archived(broker, at, first)
        if max(at, first) < following:
            yield _gap(with_reason(Gap(max(at, first), following), overview.missing))
        at = max(at, following)


def _not_archived(broker: BrokerOffsets | None, first: Offset, following: Offset) -> Iterator[TimelineSpan]:
    """Yield what is not archived, and not known to be lost: the broker has it, unless it says that it begins later."""
    there = first if broker is None or broker.first_offset is None else broker.first_offset
    gone_to = min(max(first, there), following)
    if first < gone_to:
        yield _gap(Gap(first, gone_to, GONE_AT_BROKER))
    if gone_to < following:
        yield TimelineSpan(SpanKind.WAITING, max(first, gone_to), following)


def _joined(ranges: Iterable[tuple[Offset, Offset]]) -> Sequence[tuple[Offset, Offset]]:
    """Join ranges that touch or overlap."""
    found: list[tuple[Offset, Offset]] = []
    for first, following in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], following)
        else:
            found.append((first, following))
    return found


def _gap(gap: Gap) -> TimelineSpan:
    missing = gap.next_offset - gap.first_offset
    return TimelineSpan(SpanKind.GAP, gap.first_offset, gap.next_offset, gap.reason, missing_offsets=missing)
