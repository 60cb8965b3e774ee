"""The archive as consumers have it: the shipped resolver and reader. A range is read from the bucket without HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.read.aio import AsyncReader
from coldstream.read.chunkrange import chunks_in
from coldstream.read.fetch import RangeBatch
from tests.simulation.gaps import AskedResolver
from tests.support.compacting import Inline

NAME = "orders"


class InlinePool:
    """What a reader fetches with: at once, from the bucket."""

    def __init__(self, objects: Any) -> None:
        self.fetcher = self
        self._objects = objects

    def fetch(self, part: Any, good_until: float | None) -> RangeBatch:
        return RangeBatch(part, chunks_in(part, self._objects.get_range(part.key, part.byte_range).data))

    def share(self) -> Inline:
        return Inline()


@dataclass
class SimulatedArchive:
    """Implements `ArchiveSource` by the shipped resolver and reader."""

    resolver: AskedResolver
    pool: InlinePool
    range_bytes: int

    def read(self, start: OffsetSpec, incarnation: Incarnation | None, *, chunk: bool = False) -> AsyncReader:
        return AsyncReader(
            self.resolver,  # type: ignore[arg-type]  # a client's `ranges` is a resolver's
            "/",
            NAME,
            start,
            incarnation=incarnation,
            prefetch_bytes=1 if chunk else 4 * self.range_bytes,
            range_bytes=self.range_bytes,
            fetch_pool=self.pool,  # type: ignore[arg-type]
        )
