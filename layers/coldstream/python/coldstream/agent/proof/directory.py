"""A stream's directory as the search for its names sees it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.agent.disk.disk_access import DiskAccess
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.format.chunk import ChunkHeader
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId


@dataclass(frozen=True, slots=True)
class PinnedDirectory:
    """Implements `NamedDirectory` of `proof.search` by what is pinned of a stream, and what is known of it."""

    identity: StreamIdentity
    disk: DiskAccess

    @property
    def incarnation(self) -> Incarnation:
        """The directory's name."""
        return self.identity.incarnation

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        return self.identity.stream

    @property
    def is_live(self) -> bool:
        """Whether the broker has files of it here. Raises UnavailableError when that cannot be told."""
        return self.disk.disk.pins.is_live

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk by its id."""
        return await self.disk.find(chunk_id)

    async def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two chunks are of one log."""
        return await self.disk.is_linked(earlier, later)

    async def user_chunks(self, turn: int) -> tuple[ChunkHeader, ChunkHeader] | None:
        """Return the first user chunk and another one, a different one in each turn; None if there is none."""
        return await self.disk.user_chunks(turn)
