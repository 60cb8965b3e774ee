"""Spans that are few enough to draw: narrow neighbours become one, and none of these hides a gap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from coldstream.browse.spans import SpanKind, TimelineSpan
from coldstream.errors import InvalidQueryError
from coldstream.units import Offset

LEAST_SPANS = 16
MOST_SPANS = 10_000
MAX_REASONS = 3
UNEXPLAINED = "not explained"

_WORST_FIRST = (SpanKind.GAP, SpanKind.UNREAD, SpanKind.WAITING, SpanKind.REMOVED, SpanKind.ARCHIVED)


def check_span_limit(max_spans: int) -> None:
    """Raise InvalidQueryError unless so many spans may be asked for."""
    if not LEAST_SPANS <= max_spans <= MOST_SPANS:
        raise InvalidQueryError("max_spans", f"{max_spans} is not from {LEAST_SPANS} to {MOST_SPANS}")


def join_neighbours(spans: Sequence[TimelineSpan], max_spans: int) -> tuple[TimelineSpan, ...]:
    """Return spans that cover the same offsets, `max_spans` at most; they touch, in order.

    Only spans narrower than a share of the whole are joined, with neighbours as narrow, until they have that width.
    """
    if len(spans) <= max_spans:
        return tuple(spans)
    # Two neighbours of what comes out are wider than this together, so there are at most twice as many, and one.
    width = -(-(spans[-1].next_offset - spans[0].first_offset) // max(1, (max_spans - 1) // 2))
    found: list[TimelineSpan] = []
    group: list[TimelineSpan] = []
    for span in spans:
        if group and span.next_offset - group[0].first_offset > width:
            found.append(_joined(group))
            group = []
        group.append(span)
    found.append(_joined(group))
    return tuple(found)


def join_by_place(spans: Iterable[TimelineSpan], max_spans: int) -> tuple[TimelineSpan, ...]:
    """Return spans of one kind, which may overlap, joined by where they begin if there are more than `max_spans`."""
    ordered = sorted(spans, key=lambda span: (span.first_offset, span.next_offset))
    if len(ordered) <= max_spans:
        return tuple(ordered)
    start = ordered[0].first_offset
    width = max(1, -(-(ordered[-1].first_offset + 1 - start) // max_spans))
    groups = groupby(ordered, key=lambda span: (span.first_offset - start) // width)
    return tuple(_joined(list(group)) for _, group in groups)


def _joined(group: Sequence[TimelineSpan]) -> TimelineSpan:
    if len(group) == 1:
        return group[0]
    kinds = {span.kind for span in group}
    worst = next((kind for kind in _WORST_FIRST if kind in kinds), group[0].kind)
    return TimelineSpan(
        worst,
        group[0].first_offset,
        Offset(max(span.next_offset for span in group)),
        _reasons(span for span in group if span.kind is worst),
        parts=sum(span.parts for span in group),
        missing_offsets=sum(span.missing_offsets for span in group),
    )


def _reasons(group: Iterable[TimelineSpan]) -> str | None:
    """Return the first reasons; None if there is none at all."""
    reasons: dict[str | None, None] = {}
    for span in group:
        reasons[span.reason] = None
    if set(reasons) <= {None}:
        return None
    texts = [UNEXPLAINED if reason is None else reason for reason in reasons]
    more = len(texts) - MAX_REASONS
    return "; ".join((*texts[:MAX_REASONS], *([f"and {more} more"] if more > 0 else [])))
