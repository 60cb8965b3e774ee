"""A timeline as lanes of rectangles, in percent of its width: what a template draws as SVG without any style in it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.browse.spans import SpanKind, TimelineSpan
from coldstream.browse.stream_timeline import StreamTimeline
from coldstream.units import Offset

LEAST_PERCENT = 0.35
"""How wide the narrowest span is drawn: it can be seen, and clicked."""

STUB_PERCENT = 3.0
"""The width of what comes before the archive: it was removed, and may be most of all offsets."""

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
    if not timeline.next_offset:
        return TimelineDrawing((), (), ())
    scale = _Scale(timeline.scale_from, timeline.next_offset)
    lanes = [DrawnLane("Archive", scale.placed(timeline.coverage), scale.cells())]
    for name, spans in (
        ("Losses", timeline.losses),
        ("Quarantine", timeline.quarantines),
        ("Holds", timeline.holds),
        ("Broker", _broker(timeline)),
    ):
        if spans:
            lanes.append(DrawnLane(name, scale.placed(spans)))
    kinds = {drawn.span.kind: None for lane in lanes for drawn in lane.spans}
    legend = tuple((kind.value, _WORDS[kind]) for kind in SpanKind if kind in kinds)
    return TimelineDrawing(tuple(lanes), scale.ticks(), legend)


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


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where offsets are: from `start` on to scale, and what is before it as a stub at the left."""

    start: Offset
    end: Offset

    @property
    def stub(self) -> float:
        """The width of the stub."""
        return STUB_PERCENT if self.start else 0.0

    def percent(self, offset: int) -> float:
        """Return the place of an offset."""
        if offset <= self.start or self.end == self.start:
            return self.stub * offset / self.start if self.start else 0.0
        share = (min(offset, self.end) - self.start) / (self.end - self.start)
        return self.stub + (100 - self.stub) * share

    def placed(self, spans: tuple[TimelineSpan, ...]) -> tuple[DrawnSpan, ...]:
        """Return spans with their places, the narrow ones last, over the others: they are what is looked for."""
        found = []
        for span in spans:
            x = self.percent(span.first_offset)
            width = max(LEAST_PERCENT, self.percent(span.next_offset) - x)
            found.append(DrawnSpan(span, _text(min(x, 100 - width)), _text(width)))
        return tuple(sorted(found, key=lambda drawn: -drawn.span.offsets))

    def cells(self) -> tuple[DrawnCell, ...]:
        """Return links to places all over what is drawn to scale."""
        offsets = self.end - self.start
        count = min(CELLS, offsets)
        found = []
        for number in range(count):
            offset = Offset(self.start + offsets * number // count)
            x = self.percent(offset)
            found.append(DrawnCell(offset, _text(x), _text((100 - self.stub) / count)))
        return tuple(found)

    def ticks(self) -> tuple[DrawnTick, ...]:
        """Return the offsets of the axis."""
        offsets = self.end - self.start
        parts = min(4, offsets)
        places = [Offset(self.start + offsets * number // parts) for number in range(parts + 1)] if parts else []
        anchors = ["start", *["middle"] * (parts - 1), "end"]
        return tuple(
            DrawnTick(offset, _text(self.percent(offset) or self.stub), anchor)
            for offset, anchor in zip(places, anchors[: len(places)], strict=True)
        )


def _text(percent: float) -> str:
    return f"{percent:.3f}%"
