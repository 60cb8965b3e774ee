"""What a follower gives to its consumer: chunks, or the news that it skipped a gap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """User chunks of a stream, in order. Messages before `from_offset` are not part of what was asked for.

    `source` names where the chunks come from, for error messages.
    """

    stream: str
    chunks: tuple[Chunk, ...]
    source: str
    from_offset: Offset = Offset(0)  # noqa: RUF009  a NewType is its value


@dataclass(frozen=True, slots=True)
class SkippedGap:
    """A gap that reading skipped, between the batch before it and the one after it."""

    stream: str
    gap: Gap


Give = Callable[[ChunkBatch | SkippedGap], Awaitable[None]]
"""Takes what a follower read; returns once there is room for more."""
