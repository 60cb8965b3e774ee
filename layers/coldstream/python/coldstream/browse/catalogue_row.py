"""One stream as the list of streams shows it: everything that its head says, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.browse.cost import estimate_month
from coldstream.manifest.entry import Head
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class KnownLag:
    """How far the archive is behind a broker, as the stream's agent tells it; None for what it does not know."""

    offsets: int | None
    ms: int | None


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One incarnation of a stream.

    Offsets and times are None while nothing is archived; `tail` is the offset after the last archived one, and
    `age_ms` the time since the last archived chunk, by AWS's clock. `lag` is there only if an agent was asked.
    `stored_bytes` are those of the objects, `data_bytes` those of the chunks. `gaps`, `losses` and `holds` count
    those items, `quarantined` the segments. `cost_usd` is for a month of storage; `is_cost_estimate` says that a
    policy moves fragments to another storage class, whose share is estimated (`browse.cost`).
    """

    stream: StreamId
    is_deleted: bool
    is_direct: bool
    is_sealed: bool
    messages: int
    fragments: int
    data_bytes: int
    stored_bytes: int
    first_offset: Offset | None
    tail: Offset | None
    floor: Offset
    first_time: TimestampMs | None
    last_time: TimestampMs | None
    age_ms: int | None
    gaps: int
    losses: int
    quarantined: int
    holds: int
    cost_usd: float
    is_cost_estimate: bool
    lag: KnownLag | None = None

    @property
    def compression(self) -> float | None:
        """How many bytes of chunks one stored byte holds; None while nothing is stored."""
        return self.data_bytes / self.stored_bytes if self.stored_bytes else None

    @property
    def needs_attention(self) -> bool:
        """Whether something of the stream is missing, or in quarantine."""
        return bool(self.gaps or self.losses or self.quarantined)


def row_of(head: Head, now: TimestampMs, policies: Sequence[Policy] = (), lag: KnownLag | None = None) -> CatalogueRow:
    """Return the row of a stream. Cost: no request."""
    cost = estimate_month(head, now, policies)
    last = head.greatest_timestamp if head.first_offset is not None else None
    return CatalogueRow(
        stream=head.stream,
        is_deleted=head.is_deleted,
        is_direct=head.appender is not None,
        is_sealed=head.appender is not None and head.appender.is_sealed,
        messages=head.messages,
        fragments=head.fragments,
        data_bytes=head.data_bytes,
        stored_bytes=head.object_bytes,
        first_offset=head.first_offset,
        tail=head.next_offset,
        floor=head.floor,
        first_time=head.first_timestamp if head.first_offset is not None else None,
        last_time=last,
        age_ms=None if last is None else max(0, now - last),
        gaps=head.gaps,
        losses=head.losses,
        quarantined=head.quarantined,
        holds=head.holds,
        cost_usd=cost.usd,
        is_cost_estimate=cost.is_estimate,
        lag=lag,
    )
