"""`ServedStream`: what a stream is to the server: where specs attach, its figures, and its chunks as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coldstream.manifest.spec import OffsetSpec
from coldstream.units import ChunkId, Offset


@dataclass(frozen=True, slots=True)
class ServedChunk:
    """A user chunk as a broker delivers it: the header, 48 bytes, and the data."""

    chunk_id: ChunkId
    next_offset: Offset
    delivered: bytes


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """The offset of a stream's first message, the id of its last chunk and the offset after that; empty if alike."""

    first_offset: Offset
    last_chunk_id: ChunkId
    tail: Offset

    @property
    def is_empty(self) -> bool:
        """Tell whether it has nothing."""
        return self.first_offset >= self.tail


class ChunkSource(Protocol):
    """The chunks of one stream from an offset on, for one subscription. `take` is called by one at a time."""

    async def take(self) -> ServedChunk:
        """Return the next user chunk, once there is one: follow the tail for ever.

        May be cancelled, and called again after that, and after UnavailableError, which is retryable. Raises GapError,
        after which `skip_to` goes on; CorruptionError, NotFoundError if the stream is gone.
        """
        ...

    def skip_to(self, offset: Offset) -> None:
        """Go on at an offset."""
        ...

    @property
    def tail(self) -> Offset:
        """The offset after the last one that is known of."""
        ...

    def rest(self) -> None:
        """Give back what memory can be had again: nobody will take anything for a while."""
        ...

    def close(self) -> None:
        """End it, at once."""
        ...


class ServedStream(Protocol):
    """A stream of a vhost. Methods raise UnavailableError, NotFoundError if it is gone, and CorruptionError."""

    vhost: str
    name: str

    @property
    def is_direct(self) -> bool:
        """Tell whether it takes messages here."""
        ...

    async def attach(self, spec: OffsetSpec) -> Offset:
        """Return the offset from which on a subscription with a spec is served: the tail for `next`."""
        ...

    async def figures(self) -> StreamFigures:
        """Return the figures, as of a few seconds ago."""
        ...

    def source(self, start: Offset) -> ChunkSource:
        """Return the chunks from the one that holds an offset on, of the incarnation that was attached to last."""
        ...
