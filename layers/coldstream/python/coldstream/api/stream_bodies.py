"""The bodies of answers about streams: the list of streams, one of them, and its timeline."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from coldstream.api.job_bodies import Dollars, StrictBody
from coldstream.browse.catalogue_query import CataloguePage
from coldstream.browse.catalogue_row import CatalogueRow
from coldstream.browse.spans import SpanKind, TimelineSpan
from coldstream.browse.stream_timeline import StreamTimeline
from coldstream.resolve.api import Count, OffsetNumber, TimestampNumber


class StreamRowBody(StrictBody):
    """One incarnation of a stream, as its head tells."""

    vhost: str
    name: str
    incarnation: str
    is_deleted: bool
    is_direct: bool = Field(description="Appended to without a broker")
    is_sealed: bool = Field(description="A direct stream that takes nothing any more")
    messages: Count
    fragments: Count
    data_bytes: Count = Field(description="Size of the chunks")
    stored_bytes: Count = Field(description="Size of the objects")
    first_offset: OffsetNumber | None = Field(description="Null while nothing is archived")
    tail: OffsetNumber | None = Field(description="The offset after the last archived one")
    floor: OffsetNumber = Field(description="Offsets below this were removed")
    first_time: TimestampNumber | None
    last_time: TimestampNumber | None
    age_ms: Count | None = Field(description="Since the last archived chunk")
    gaps: Count
    losses: Count
    quarantined: Count = Field(description="Segments in quarantine")
    holds: Count
    cost_usd: Dollars
    is_cost_estimate: bool = Field(description="The shares of storage classes are estimated")

    @classmethod
    def of(cls, row: CatalogueRow) -> Self:
        """Encode the value."""
        stream = row.stream
        names = cls.model_fields.keys() - {"vhost", "name", "incarnation"}
        return cls(
            vhost=stream.vhost,
            name=stream.name,
            incarnation=stream.incarnation,
            **{name: getattr(row, name) for name in names},
        )


class StreamSumsBody(StrictBody):
    """Sums over all streams that match."""

    streams: Count
    messages: Count
    data_bytes: Count
    stored_bytes: Count
    gaps: Count
    losses: Count
    quarantined: Count
    cost_usd: Dollars
    is_cost_estimate: bool


class StreamListBody(StrictBody):
    """A page of the streams that the caller may read."""

    streams: list[StreamRowBody]
    totals: StreamSumsBody
    page: Annotated[int, Field(ge=1)] | None = Field(description="Null if it was asked for by a cursor")
    pages: Count = Field(description="Pages of all that match")
    next_cursor: str | None
    previous_cursor: str | None
    as_of: TimestampNumber = Field(description="When the heads were read; up to half a minute ago")
    is_cut: bool = Field(description="The archive has more streams than are listed")
    problem: str | None = Field(description="Why the heads could not be read again since")

    @classmethod
    def of(cls, page: CataloguePage) -> Self:
        """Encode the value."""
        totals = {name: getattr(page.totals, name) for name in StreamSumsBody.model_fields}
        return cls(
            streams=[StreamRowBody.of(row) for row in page.rows],
            totals=StreamSumsBody(**totals),
            page=page.page,
            pages=page.pages,
            next_cursor=page.next_cursor,
            previous_cursor=page.previous_cursor,
            as_of=page.as_of,
            is_cut=page.is_cut,
            problem=page.problem,
        )


class SpanBody(StrictBody):
    """Offsets of a kind, `first_offset` up to, not including, `next_offset`."""

    kind: SpanKind
    first_offset: OffsetNumber
    next_offset: OffsetNumber
    reason: str | None
    parts: Annotated[int, Field(ge=1)] = Field(description="Spans that it stands for, too narrow to be told apart")
    missing_offsets: Count
    id: str | None = Field(description="Of a hold")
    by: str | None = Field(description="Who put a hold")
    at: TimestampNumber | None

    @classmethod
    def of(cls, span: TimelineSpan) -> Self:
        """Encode the value."""
        return cls(**{name: getattr(span, name) for name in cls.model_fields})


class TimelineBody(StrictBody):
    """What there is of a stream's offsets, from 0 up to `next_offset`, in lanes of spans."""

    vhost: str
    name: str
    incarnation: str
    scale_from: OffsetNumber = Field(description="What comes before was removed, or never archived")
    next_offset: OffsetNumber
    coverage: list[SpanBody] = Field(description="They cover every offset once, in order")
    losses: list[SpanBody] = Field(description="They may lie anywhere over the coverage, as those of the other lanes")
    quarantines: list[SpanBody]
    holds: list[SpanBody]
    is_cut: bool = Field(description="There were more gaps, losses or quarantines than were read")
    is_changing: bool = Field(description="The manifest was being changed meanwhile")

    @classmethod
    def of(cls, timeline: StreamTimeline) -> Self:
        """Encode the value."""
        stream = timeline.head.stream
        lanes = ("coverage", "losses", "quarantines", "holds")
        return cls(
            vhost=stream.vhost,
            name=stream.name,
            incarnation=stream.incarnation,
            scale_from=timeline.scale_from,
            next_offset=timeline.next_offset,
            is_cut=timeline.is_cut,
            is_changing=timeline.is_changing,
            **{lane: [SpanBody.of(span) for span in getattr(timeline, lane)] for lane in lanes},
        )
