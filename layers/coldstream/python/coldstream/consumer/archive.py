"""The archive of one stream, by the resolver."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.read.aio import AsyncReader
from coldstream.read.client import ResolverClient
from coldstream.read.fetch_pool import FetchPool
from coldstream.units import MIB


@dataclass(frozen=True, slots=True)
class StreamArchive:
    """Implements `ArchiveSource`. `prefetch_bytes` is that of each reading; all share the pool."""

    client: ResolverClient
    vhost: str
    name: str
    pool: FetchPool
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
            prefetch_bytes=1 if chunk else self.prefetch_bytes,
            range_bytes=MIB if chunk else self.range_bytes,
            fetch_pool=self.pool,
        )
