"""`OffsetRange`: what a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.shard_rank import RankedStretch
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one stream to read. If `exactly`, those before the first archived offset count as missing.

    `stretch` is the one that they are in, of a partition of a sharded stream.
    """

    stream: StreamId
    start: Offset
    end: Offset
    exactly: bool
    stretch: RankedStretch | None = None
