"""`MemoryHistory`: the port's double, whose archive is what a test puts into it, with the faults that it asks for."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from coldstream.errors import ColdstreamError, GapError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.gateway.history.port import ArchivedHeader, StreamBounds
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, new_stream
from coldstream.read.http import ClosedError
from coldstream.units import Offset


@dataclass(slots=True)
class MemoryArchive:
    """One stream of the double. Chunks are in order; where one does not follow the one before, there is a gap.

    Change any of it while it is read. `flows` is cleared to make readings hang, and set to let them go on;
    `answers` does the same to every question. `error` is raised in place of the chunk that holds `error_at`, and by
    every question with `question_error`.
    """

    incarnation: Incarnation
    chunks: list[Chunk] = field(default_factory=list)
    is_direct: bool = False
    is_erased: bool = False
    reasons: dict[int, str] = field(default_factory=dict)
    """Why there is a gap, by its first offset."""
    lost_to: Offset | None = None
    """Up to where the offsets past the last chunk are known to be lost."""
    error: ColdstreamError | None = None
    error_at: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    question_error: ColdstreamError | None = None
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.flows.set()
        self.answers.set()

    @property
    def tail(self) -> Offset:
        """The offset after the last chunk."""
        return self.chunks[-1].header.next_offset if self.chunks else Offset(0)

    def number_at(self, offset: Offset) -> int:
        """Return the number of the first chunk that ends past an offset."""
        return bisect_right(self.chunks, offset, key=lambda chunk: chunk.header.next_offset)


class MemoryReading:
    """Implement `ChunkReading` on a stream of the double."""

    def __init__(self, archive: MemoryArchive, name: str, start: Offset, end: Offset | None, open_: set[Self]) -> None:
        self._archive = archive
        self._name = name
        self._at = start
        self._is_first = True
        self._end = end
        self._open = open_
        self._closing = asyncio.Event()
        open_.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        waits = [asyncio.ensure_future(one.wait()) for one in (self._archive.flows, self._closing)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._closing.is_set():
            raise ClosedError
        found = self._next()
        if found is None:
            raise StopAsyncIteration
        return found

    def take(self) -> Chunk | None:
        """Return the next chunk unless readings are stalled, or there is a gap or an error."""
        if self._closing.is_set() or not self._archive.flows.is_set():
            return None
        try:
            return self._next()
        except ColdstreamError:
            return None

    def close(self) -> None:
        """Close it."""
        self._closing.set()
        self._open.discard(self)

    def _next(self) -> Chunk | None:
        if self._end is not None and self._at >= self._end:
            return None
        archive = self._archive
        number = archive.number_at(self._at)
        if number == len(archive.chunks):
            if archive.lost_to is not None and self._at < archive.lost_to:
                raise GapError(self._name, self._at, archive.lost_to, archive.reasons.get(self._at))
            return None
        chunk = archive.chunks[number]
        if archive.error is not None and chunk.header.next_offset > archive.error_at:
            raise archive.error
        if chunk.header.chunk_id > self._at:
            raise GapError(self._name, self._at, chunk.header.chunk_id, archive.reasons.get(self._at))
        self._at = chunk.header.next_offset
        return chunk


class MemoryHistory:
    """Implement `History` in memory.

    `asked` counts the questions by name, and `open_readings` are those that are not closed. `offsets` are the noted
    ones, by vhost, stream and reference.
    """

    def __init__(self) -> None:
        self.archives: dict[tuple[str, str], MemoryArchive] = {}
        self.maps: dict[tuple[str, str], ShardMap] = {}
        self.offsets: dict[tuple[str, str, str], Offset] = {}
        self.asked: Counter[str] = Counter()
        self.open_readings: set[MemoryReading] = set()
        self.is_closed = False

    def put(self, vhost: str, stream: str, chunks: Iterable[Chunk], *, is_direct: bool = False) -> MemoryArchive:
        """Archive a stream, as a new incarnation of its name, and return it."""
        self.offsets = {key: offset for key, offset in self.offsets.items() if key[:2] != (vhost, stream)}
        incarnation = new_stream(vhost, stream, 1_700_000_000_000_000_000 + len(self.archives)).incarnation
        archive = MemoryArchive(incarnation, list(chunks), is_direct)
        self.archives[vhost, stream] = archive
        return archive

    async def bounds(self, vhost: str, stream: str, *, fresh: bool = False) -> StreamBounds | None:  # noqa: ARG002
        """Return the bounds as they are now."""
        archive = await self._ask("bounds", vhost, stream)
        if archive is None or not (archive.chunks or archive.is_direct):
            return None
        first = Offset(archive.chunks[0].header.chunk_id) if archive.chunks else Offset(0)
        return StreamBounds(archive.incarnation, first, archive.tail, archive.is_direct)

    async def attach(self, vhost: str, stream: str, spec: OffsetSpec) -> Offset | None:
        """Find where a spec attaches."""
        archive = await self._ask("attach", vhost, stream)
        if archive is None or not archive.chunks:
            return None
        ids = [Offset(chunk.header.chunk_id) for chunk in archive.chunks]
        match spec:
            case AtOffset(offset):
                return max(offset, ids[0]) if offset < archive.tail else None
            case AtTimestamp(timestamp):
                late = zip(ids, archive.chunks, strict=True)
                return next((one for one, chunk in late if chunk.header.timestamp >= timestamp), None)
            case AtEnd("first"):
                return ids[0]
            case AtEnd("last"):
                users = [one for one in archive.chunks if one.header.type is ChunkType.USER]
                return Offset(users[-1].header.chunk_id) if users else None
            case AtEnd():
                return None

    async def header_at(self, vhost: str, stream: str, offset: Offset) -> ArchivedHeader | None:
        """Return the header of the chunk that holds an offset."""
        archive = await self._ask("header_at", vhost, stream)
        number = 0 if archive is None else archive.number_at(offset)
        if archive is None or number == len(archive.chunks):
            return None
        header = archive.chunks[number].header
        return ArchivedHeader(header, archive.is_erased) if header.chunk_id <= offset else None

    def read(
        self, vhost: str, stream: str, incarnation: Incarnation, start: Offset, end: Offset | None = None
    ) -> MemoryReading:
        """Read a stream of that incarnation; of another one there is nothing."""
        self.asked["read"] += 1
        archive = self.archives.get((vhost, stream))
        if archive is None or archive.incarnation != incarnation:
            archive = MemoryArchive(incarnation)
        return MemoryReading(archive, f"stream {stream!r} in vhost {vhost!r}", start, end, self.open_readings)

    async def stored_offset(self, vhost: str, stream: str, reference: str) -> Offset | None:
        """Return the noted offset."""
        await self._ask("stored_offset", vhost, stream)
        return self.offsets.get((vhost, stream, reference))

    def note_offset(self, vhost: str, stream: str, reference: str, offset: Offset) -> None:
        """Note an offset."""
        self.offsets[vhost, stream, reference] = offset

    async def streams(self, vhost: str) -> tuple[str, ...]:
        """Return the names in a vhost."""
        return tuple(sorted(name for of, name in self.archives if of == vhost))

    async def shard_map(self, vhost: str, name: str) -> ShardMap | None:
        """Return a map that was put into `maps`."""
        return self.maps.get((vhost, name))

    async def flush(self) -> None:
        """Do nothing: what is noted is there."""

    async def close(self) -> None:
        """Close all readings."""
        self.is_closed = True
        for reading in list(self.open_readings):
            reading.close()

    async def _ask(self, question: str, vhost: str, stream: str) -> MemoryArchive | None:
        self.asked[question] += 1
        archive = self.archives.get((vhost, stream))
        if archive is not None:
            await archive.answers.wait()
            if archive.question_error is not None:
                raise archive.question_error
        return archive
