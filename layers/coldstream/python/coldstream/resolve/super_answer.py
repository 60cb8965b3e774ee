"""The question for the ranges of a sharded stream, and the answer: what of each partition may be read now."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coldstream.manifest.entry import Gap
from coldstream.manifest.shard_map import Lineage
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.spec import AtEnd, AtTimestamp
from coldstream.manifest.stream import StreamId
from coldstream.resolve.answer import Bounds, Continue, Range
from coldstream.units import Offset


class SuperOrder(StrEnum):
    """In which order partitions may be read."""

    KEY = "key"
    """A partition waits where lineage says that earlier messages of its keys are in another one."""

    ARRIVAL = "arrival"
    """No partition waits."""


@dataclass(frozen=True, slots=True)
class SuperQuery:
    """Asks which ranges hold a sharded stream from `start` on.

    `bounds` are shared by the partitions. A cursor has the order of the query that it comes from.
    """

    vhost: str
    name: str
    start: AtEnd | AtTimestamp | ShardPosition | Continue
    order: SuperOrder = SuperOrder.KEY
    bounds: Bounds = field(default_factory=Bounds)
    precise: bool = False


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """What there is of a partition: take its messages from `from_offset` up to `next_offset`, and no others.

    `stream` is None for a partition that the archive does not know yet: its tail is 0. Of `ranges`, the first may begin
    before `from_offset`, and the last may end after `next_offset`, if the partition waits there. `gap` or `tail` says
    what follows; neither, that there is more, or that the partition waits. `waits_for` is an edge that holds it back at
    `limit`.
    """

    number: int
    name: str
    from_offset: Offset
    next_offset: Offset
    stream: StreamId | None = None
    ranges: tuple[Range, ...] = ()
    gap: Gap | None = None
    tail: Offset | None = None
    floor: Offset | None = None
    limit: Offset | None = None
    waits_for: Lineage | None = None


@dataclass(frozen=True, slots=True)
class SuperAnswer:
    """The partitions that were looked at, in turn, of a map at `revision`.

    `position` is after all that was answered, here and in the answers before; None while a time, `last` or `next` was
    not yet found in every partition. `cursor` continues; None once each partition is at its tail, or waits for what is
    not archived or not sealed yet.
    """

    vhost: str
    name: str
    revision: int
    order: SuperOrder
    partitions: tuple[PartitionAnswer, ...]
    position: ShardPosition | None
    cursor: str | None
