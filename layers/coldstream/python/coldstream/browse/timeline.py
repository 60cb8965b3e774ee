"""Read the timeline of a stream: two Queries, whatever the stream's size, for the log itself is not read.

The head tells where the log begins and ends, its gaps have items of their own, and everything between two gaps is
archived. What lies past the tail follows from the losses, the segments in quarantine, and what a broker was asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from coldstream.browse.cost import query_cost
from coldstream.browse.coverage import coverage_before, coverage_from_first, end_of
from coldstream.browse.drawing import check_span_limit, join_by_place, join_neighbours
from coldstream.browse.spans import BrokerOffsets, SpanKind, TimelineSpan
from coldstream.browse.stream_timeline import MAX_SPANS, StreamTimeline
from coldstream.errors import StreamNotFoundError
from coldstream.manifest.entry import Head, Hold, Loss, Missing, Quarantine
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads, StreamOverview
from coldstream.units import Offset

READS = 3
"""How often a view that contradicts itself is read."""

PAUSE_S = 0.05

OTHER_AT_BROKER = "the broker has another incarnation of the stream, or its node lags"


def read_timeline(
    table: ManifestReads,
    stream: StreamId,
    *,
    broker: BrokerOffsets | None = None,
    max_spans: int = MAX_SPANS,
    sleep: Callable[[float], None] = time.sleep,
) -> StreamTimeline:
    """Return what there is of a stream's offsets, in `max_spans` at most for each lane; a deleted stream's, too.

    Cost: two Queries; while the manifest is being changed, up to six. Raises StreamNotFoundError, InvalidQueryError.
    """
    check_span_limit(max_spans)
    reads = 1
    overview, head = _read(table, stream)
    while not _agrees(overview, head) and reads < READS:
        sleep(PAUSE_S * reads)
        overview, head = _read(table, stream)
        reads += 1
    broker = None if broker is None else _of_this_stream(broker, head)
    end = end_of(overview, head, broker)
    others = len(overview.gaps) + len(overview.holds) + len(overview.missing)
    coverage = (
        *coverage_before(overview, head),
        *join_neighbours(tuple(coverage_from_first(overview, head, broker, end)), max_spans - 2),
    )
    return StreamTimeline(
        head=head,
        scale_from=head.first_offset if head.first_offset is not None else head.floor,
        next_offset=end,
        coverage=coverage,
        losses=join_by_place(_missing(overview.missing, Loss), max_spans),
        quarantines=join_by_place(_missing(overview.missing, Quarantine), max_spans),
        holds=join_by_place((_hold(hold, end) for hold in overview.holds), max_spans),
        broker=broker,
        cost=query_cost(2 * reads, others=others * reads),
        is_cut=overview.gaps_from is not None or overview.is_missing_cut,
        is_changing=not _agrees(overview, head),
    )


def _read(table: ManifestReads, stream: StreamId) -> tuple[StreamOverview, Head]:
    overview = table.overview(stream.incarnation)
    head = overview.head
    if head is None or head.stream != stream:
        raise StreamNotFoundError(f"nothing of {stream}, incarnation {stream.incarnation}, is archived")
    return overview, head


def _of_this_stream(broker: BrokerOffsets, head: Head) -> BrokerOffsets:
    """Return a broker's offsets unless they are of another incarnation, whose offsets begin at 0 again.

    Only committed chunks are archived, so a broker that ends before the archive has another stream of that name, or its
    node lags behind the leader.
    """
    if broker.next_offset is None or broker.next_offset >= (head.next_offset or 0):
        return broker
    return BrokerOffsets(problem=f"{OTHER_AT_BROKER}: it ends before offset {broker.next_offset}")


def _agrees(overview: StreamOverview, head: Head) -> bool:
    """Tell whether the items are as many as the head counts, as far as all were read."""
    are_gaps = overview.gaps_from is not None or (len(overview.gaps), len(overview.holds)) == (head.gaps, head.holds)
    losses = sum(isinstance(one, Loss) for one in overview.missing)
    counted = (losses, len(overview.missing) - losses)
    return are_gaps and (overview.is_missing_cut or counted == (head.losses, head.quarantined))


def _missing(found: Iterable[Missing], kind: type[Missing]) -> Iterable[TimelineSpan]:
    span_kind = SpanKind.LOSS if kind is Loss else SpanKind.QUARANTINE
    for one in found:
        if isinstance(one, kind):
            yield TimelineSpan(span_kind, one.first_offset, one.next_offset, one.reason, at=one.at)


def _hold(hold: Hold, end: Offset) -> TimelineSpan:
    # One without an end reaches past the tail: as far as the timeline goes.
    following = hold.next_offset or Offset(max(end, hold.first_offset + 1))
    return TimelineSpan(SpanKind.HOLD, hold.first_offset, following, hold.reason, id=hold.id, by=hold.by, at=hold.at)
