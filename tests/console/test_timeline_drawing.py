"""Where the spans of a timeline are drawn."""

from __future__ import annotations

import pytest

from coldstream.browse.cost import ReadCost
from coldstream.browse.spans import BrokerOffsets, SpanKind, TimelineSpan
from coldstream.browse.stream_timeline import StreamTimeline
from coldstream.console.timeline_drawing import CELLS, LEAST_PERCENT, STUB_PERCENT, TimelineDrawing, draw, words_of
from coldstream.manifest.entry import Head
from coldstream.units import MAX_OFFSET, Offset
from tests.store.samples import ORDERS


def span(kind: SpanKind, first: int, following: int, **more: int) -> TimelineSpan:
    return TimelineSpan(kind, Offset(first), Offset(following), **more)


def drawn(
    *coverage: TimelineSpan,
    scale_from: int = 0,
    holds: tuple[TimelineSpan, ...] = (),
    broker: BrokerOffsets | None = None,
) -> TimelineDrawing:
    end = max((one.next_offset for one in coverage), default=Offset(0))
    timeline = StreamTimeline(Head(ORDERS), Offset(scale_from), end, coverage, (), (), holds, broker, ReadCost())
    return draw(timeline)


def places(drawing: TimelineDrawing, lane: int = 0) -> list[tuple[str, float, float]]:
    found = [(one.span.kind.value, float(one.x[:-1]), float(one.width[:-1])) for one in drawing.lanes[lane].spans]
    return sorted(found, key=lambda one: one[1])


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawn() == TimelineDrawing((), (), ())


def test_spans_lie_to_scale() -> None:
    drawing = drawn(span(SpanKind.ARCHIVED, 0, 25), span(SpanKind.GAP, 25, 50), span(SpanKind.ARCHIVED, 50, 100))
    assert places(drawing) == [("archived", 0, 25), ("gap", 25, 25), ("archived", 50, 50)]
    assert [(tick.offset, tick.x, tick.anchor) for tick in drawing.ticks] == [
        (0, "0.000%", "start"),
        (25, "25.000%", "middle"),
        (50, "50.000%", "middle"),
        (75, "75.000%", "middle"),
        (100, "100.000%", "end"),
    ]
    assert drawing.kinds == (("archived", "archived"), ("gap", "missing"))


def test_what_was_removed_is_a_stub_however_much_it_is() -> None:
    drawing = drawn(span(SpanKind.REMOVED, 0, 10**12), span(SpanKind.ARCHIVED, 10**12, 10**12 + 10), scale_from=10**12)
    assert places(drawing) == [("removed", 0, STUB_PERCENT), ("archived", STUB_PERCENT, 100 - STUB_PERCENT)]
    assert drawing.ticks[0].x == f"{STUB_PERCENT:.3f}%"


@pytest.mark.parametrize("first", [0, 500_000_000, 999_999_999])
def test_a_gap_of_one_offset_among_a_billion_can_be_seen_and_lies_over_the_others(first: int) -> None:
    gap = span(SpanKind.GAP, first, first + 1)
    around = [span(SpanKind.ARCHIVED, 0, first)] if first else []
    drawing = drawn(*around, gap, span(SpanKind.ARCHIVED, first + 1, 10**9) if first < 10**9 - 1 else gap)
    shown = drawing.lanes[0].spans[-1]
    assert shown.span == gap
    assert float(shown.width[:-1]) == LEAST_PERCENT
    assert 0 <= float(shown.x[:-1]) <= 100 - LEAST_PERCENT


def test_nothing_is_drawn_outside_even_of_the_largest_offsets() -> None:
    hold = span(SpanKind.HOLD, 5, MAX_OFFSET)
    drawing = drawn(span(SpanKind.ARCHIVED, 0, 10), holds=(hold,))
    for lane in drawing.lanes:
        for one in lane.spans:
            assert 0 <= float(one.x[:-1]) + float(one.width[:-1]) <= 100.001


@pytest.mark.parametrize("offsets", [1, 2, 3, 99, 100, 101, 10**9])
def test_links_cover_all_of_the_width_once(offsets: int) -> None:
    cells = drawn(span(SpanKind.ARCHIVED, 0, offsets)).lanes[0].cells
    assert len(cells) == min(CELLS, offsets)
    ends = [float(cell.x[:-1]) + float(cell.width[:-1]) for cell in cells]
    for end, following in zip(ends, cells[1:], strict=False):
        assert abs(end - float(following.x[:-1])) < 0.6
    assert cells[0].offset == 0
    assert abs(ends[-1] - 100) < 0.6


def test_the_broker_has_a_lane_if_it_has_anything() -> None:
    one = span(SpanKind.ARCHIVED, 0, 10)
    assert [lane.name for lane in drawn(one, broker=BrokerOffsets(Offset(5), Offset(9))).lanes] == ["Archive", "Broker"]
    for nothing in (BrokerOffsets(), BrokerOffsets(Offset(5), Offset(5)), BrokerOffsets(problem="away")):
        assert len(drawn(one, broker=nothing).lanes) == 1


def test_joined_spans_say_how_many_they_are() -> None:
    assert words_of(span(SpanKind.GAP, 0, 10, parts=3, missing_offsets=7)) == "3 parts, 7 offsets missing"
