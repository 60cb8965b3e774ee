"""The timeline of a stream: lanes of spans over its offsets, few enough to draw."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.browse.cost import ReadCost
from coldstream.browse.spans import BrokerOffsets, TimelineSpan
from coldstream.manifest.entry import Head
from coldstream.units import Offset

MAX_SPANS = 400
"""Spans of a lane, unless asked for others."""


@dataclass(frozen=True, slots=True)
class StreamTimeline:
    """What there is of a stream's offsets from 0 up to `next_offset`.

    What comes before `scale_from` was removed, or never archived, and may be most of all offsets: whoever draws to
    scale begins there, and draws what is before it as a stub.

    The spans of `coverage` cover everything, in order, each offset once: REMOVED, ARCHIVED, GAP, UNREAD or WAITING.
    Those of `losses`, `quarantines` and `holds` may lie anywhere over them, and over each other. Of more spans than
    fit, narrow neighbours are joined, and none of the joined ones hides a gap. `is_cut` says that there were more gaps,
    losses or quarantines than were read: the oldest gaps, and the last losses and quarantines, are not shown then.
    `is_changing` says that items and the head's counts did not agree, as the manifest was being changed. `broker` is
    None if no broker was asked.
    """

    head: Head
    scale_from: Offset
    next_offset: Offset
    coverage: tuple[TimelineSpan, ...]
    losses: tuple[TimelineSpan, ...]
    quarantines: tuple[TimelineSpan, ...]
    holds: tuple[TimelineSpan, ...]
    broker: BrokerOffsets | None
    cost: ReadCost
    is_cut: bool = False
    is_changing: bool = False

    @property
    def scale_offsets(self) -> int:
        """How many offsets are drawn to scale."""
        return self.next_offset - self.scale_from
