"""What a follower gives to its consumer: chunks, or the news of what it passed over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """User chunks of a stream, in order. Messages before `from_offset` are not part of what was asked for.

    `source` names where the chunks come from, for error messages. `partition` is the number in a sharded stream's map,
    `tenure` the run of its follower in a group.
    """

    stream: str
    chunks: tuple[Chunk, ...]
    source: str
    from_offset: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    partition: int | None = None
    tenure: int = 0


@dataclass(frozen=True, slots=True)
class SkippedGap:
    """A gap that reading skipped, between the batch before it and the one after it."""

    stream: str
    gap: Gap
    partition: int | None = None
    tenure: int = 0


@dataclass(frozen=True, slots=True)
class ReachedOffset:
    """Nothing before an offset is left to give. `at_tail` says that the archive is read to its end for now."""

    stream: str
    offset: Offset
    at_tail: bool = False
    partition: int | None = None
    tenure: int = 0


BatchItem = ChunkBatch | SkippedGap | ReachedOffset

Give = Callable[[BatchItem], Awaitable[None]]
"""Takes what a follower read; returns once there is room for more."""
