"""What a recording is told beside which streams: where to begin and to end, and who watches it.

An agent records everything, from the first message on and without an end. A store job may want less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset


class RecordingWatch:
    """Is told what becomes of each stream, in the event loop. It must not block or raise, but for `begins`."""

    async def begins(self, stream: StreamId, offset: Offset) -> None:
        """Take note that a stream of which nothing is archived is recorded from an offset on, before it is."""

    async def records(self, stream: StreamId, offset: Offset) -> None:
        """Take note that a stream is recorded from an offset on, now and again after each connection was lost."""

    def recorded(self, stream: StreamId, header: ChunkHeader) -> None:
        """Take note of a user chunk."""

    def lost(self, stream: StreamId, first_offset: Offset, next_offset: Offset, reason: str) -> None:
        """Take note of offsets that are gone; told again after a crash."""

    def ended(self, stream: StreamId, next_offset: Offset) -> None:
        """Take note that a stream has come to the end that the plan gives."""

    def waits(self, vhost: str, name: str, why: str) -> None:
        """Take note that nothing of a stream can be recorded now: it is empty, or not there."""


def _from_the_first(vhost: str, name: str) -> OffsetSpec:  # noqa: ARG001  a plan's signature
    return FIRST


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """Where to begin with a stream of which nothing is archived, by vhost and name, and where to end with each.

    An end is an offset or a time; the first chunk at or after it is not recorded any more.
    """

    start: Callable[[str, str], OffsetSpec] = _from_the_first
    end: AtOffset | AtTimestamp | None = None
    watch: RecordingWatch = field(default_factory=RecordingWatch)


FOREVER = RecordingPlan()
