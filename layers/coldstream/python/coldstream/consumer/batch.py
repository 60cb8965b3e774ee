"""What a follower gives."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """User chunks of a stream, in order, whose messages before `from_offset` are not wanted; or a gap passed over."""

    stream: str
    chunks: tuple[Chunk, ...] = ()
    source: str = ""
    from_offset: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    gap: Gap | None = None
