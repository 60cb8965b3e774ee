"""A chunk of the broker that waits for what comes before it."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.format.chunk import ChunkHeader


@dataclass(frozen=True, slots=True)
class KeptChunk:
    """A Deliver frame, whole, and the header in it. `number` counts what was kept of a subscription, from 1."""

    header: ChunkHeader
    frame: bytes
    number: int

    @property
    def version(self) -> int:
        """The version of Deliver that the connection has."""
        return int.from_bytes(self.frame[6:8])
