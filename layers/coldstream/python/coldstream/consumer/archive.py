"""The archive of one stream, by the resolver."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.read.aio import AsyncReader
from coldstream.read.client import ResolverClient
from coldstream.units import MIB


@dataclass(frozen=True, slots=True)
class StreamArchive:
    """Implements `ArchiveSource`. `connections` and `prefetch_bytes` are those of each reading."""

    client: ResolverClient
    vhost: str
    name: str
    connections: int
    prefetch_bytes: int
    range_bytes: int

    def read(self, start: OffsetSpec, incarnation: Incarnation | None, *, chunk: bool = False) -> AsyncReader:
        """Return a reading with ranges of `range_bytes`; for one chunk, with a single range of about a MiB."""
        # One byte to prefetch still admits one range, and never a second one.
        return AsyncReader(
            self.client,
            self.vhost,
            self.name,
            start,
            incarnation=incarnation,
            connections=1 if chunk else self.connections,
            prefetch_bytes=1 if chunk else self.prefetch_bytes,
            range_bytes=MIB if chunk else self.range_bytes,
        )
