"""A timeline as lanes of rectangles, in percent of its width: what a template draws as SVG without any style in it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.browse.spans import SpanKind, TimelineSpan
from coldstream.browse.stream_timeline import StreamTimeline
from coldstream.units import Offset

LEAST_PERCENT = 0.35
"""How wide the narrowest span is drawn: it can be seen, and clicked."""

CELLS = 100
"""Links over what is archived: a click goes to the offset there, to a hundredth of the stream."""

_WORDS = {
    SpanKind.REMOVED: "removed on purpose",
    SpanKind.ARCHIVED: "archived",
    SpanKind.GAP: "missing",
    SpanKind.UNREAD: "archived, with gaps too many to draw",
    SpanKind.WAITING: "not archived yet",
    SpanKind.LOSS: "lost",
    SpanKind.QUARANTINE: "in quarantine",
    SpanKind.HOLD: "legal hold",
    SpanKind.BROKER: "at the broker",
}


@dataclass(frozen=True, slots=True)
class DrawnSpan:
    """A span with its place: `x` and `width` are percentages, as SVG takes them."""

    span: TimelineSpan
    x: str
    width: str

    @property
    def words(self) -> str:
        """What there is of these offsets, in a few words."""
        return words_of(self.span)


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """A link to an offset, over a hundredth of the width."""

    offset: Offset
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """A lane: its name, spans from left to right, and the links over those that are archived."""

    name: str
    spans: tuple[DrawnSpan, ...]
    cells: tuple[DrawnCell, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnTick:
    """An offset at the axis, and to which side of its place its text stands."""

    offset: Offset
    x: str
    anchor: str


@dataclass(frozen=True, slots=True)
class TimelineDrawing:
    """All lanes that have anything, and the axis below them."""

    lanes: tuple[DrawnLane, ...]
    ticks: tuple[DrawnTick, ...]
    kinds: tuple[tuple[str, str], ...]
    """Which kinds are drawn, by the class and in words: the legend."""


def draw(timeline: StreamTimeline) -> TimelineDrawing:
    """Lay a timeline out."""
    first, offsets = timeline.first_offset, timeline.offsets
    if not offsets:
        return TimelineDrawing((), (), ())
    lanes = [DrawnLane("Archive", _placed(timeline.coverage, first, offsets), _cells(timeline))]
    for name, spans in (
        ("Losses", timeline.losses),
        ("Quarantine", timeline.quarantines),
        ("Holds", timeline.holds),
        ("Broker", _broker(timeline)),
    ):
        if spans:
            lanes.append(DrawnLane(name, _placed(spans, first, offsets)))
    kinds = {drawn.span.kind: None for lane in lanes for drawn in lane.spans}
    legend = tuple((kind.value, _WORDS[kind]) for kind in SpanKind if kind in kinds)
    return TimelineDrawing(tuple(lanes), _ticks(first, offsets), legend)


def words_of(span: TimelineSpan) -> str:
    """Say what there is of a span's offsets, in a few words."""
    if span.parts > 1:
        return f"{span.parts:,} parts, {span.missing_offsets:,} offsets missing"
    return _WORDS[span.kind]


def _broker(timeline: StreamTimeline) -> tuple[TimelineSpan, ...]:
    broker = timeline.broker
    if broker is None or broker.first_offset is None or broker.next_offset is None:
        return ()
    if broker.next_offset <= broker.first_offset:
        return ()
    return (TimelineSpan(SpanKind.BROKER, broker.first_offset, broker.next_offset),)


def _placed(spans: tuple[TimelineSpan, ...], first: Offset, offsets: int) -> tuple[DrawnSpan, ...]:
    found = []
    for span in spans:
        x = _percent(max(0, span.first_offset - first), offsets)
        end = _percent(min(offsets, span.next_offset - first), offsets)
        width = max(LEAST_PERCENT, end - x)
        found.append(DrawnSpan(span, _text(min(x, 100 - width)), _text(width)))
    # The narrow ones last, over the others: they are what is looked for.
    return tuple(sorted(found, key=lambda drawn: -drawn.span.offsets))


def _cells(timeline: StreamTimeline) -> tuple[DrawnCell, ...]:
    count = min(CELLS, timeline.offsets)
    found = []
    for number in range(count):
        offset = Offset(timeline.first_offset + timeline.offsets * number // count)
        found.append(DrawnCell(offset, _text(100 * number / count), _text(100 / count)))
    return tuple(found)


def _ticks(first: Offset, offsets: int) -> tuple[DrawnTick, ...]:
    parts = min(4, offsets)
    anchors = ["start", *["middle"] * (parts - 1), "end"]
    return tuple(
        DrawnTick(Offset(first + offsets * number // parts), _text(100 * number / parts), anchor)
        for number, anchor in enumerate(anchors)
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole


def _text(percent: float) -> str:
    return f"{percent:.3f}%"
