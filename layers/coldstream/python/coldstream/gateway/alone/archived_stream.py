"""A broker's stream, from the archive. What is archived later is followed, by questions with pauses between."""

from __future__ import annotations

import asyncio

from coldstream.errors import StreamNotFoundError
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.gateway.alone.served_stream import ServedChunk, StreamFigures
from coldstream.gateway.history.port import ChunkReading, History, StreamBounds
from coldstream.manifest.spec import NEXT, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Offset

_FIRST_PAUSE_S = 0.25


class ArchivedStream:
    """The newest incarnation of an archived stream."""

    is_direct = False

    def __init__(self, history: History, vhost: str, name: str, poll_s: float) -> None:
        self.vhost = vhost
        self.name = name
        self._history = history
        self._poll_s = poll_s
        self._incarnation: Incarnation | None = None

    async def attach(self, spec: OffsetSpec) -> Offset:
        """See ServedStream."""
        # Before the question: if the stream is declared anew meanwhile, the offset is of one or the other.
        self._incarnation = (await self._bounds()).incarnation
        at = None if spec == NEXT else await self._history.attach(self.vhost, self.name, spec)
        return (await self._bounds()).tail if at is None else at

    async def figures(self) -> StreamFigures:
        """See ServedStream."""
        bounds = await self._bounds()
        last = bounds.tail
        if bounds.first_offset < bounds.tail:
            found = await self._history.header_at(self.vhost, self.name, Offset(bounds.tail - 1))
            last = Offset(bounds.tail - 1) if found is None else Offset(found.header.chunk_id)
        return StreamFigures(bounds.first_offset, ChunkId(last), bounds.tail)

    def source(self, start: Offset) -> ArchivedSource:
        """See ServedStream."""
        assert self._incarnation is not None
        stream = StreamId(self.vhost, self.name, self._incarnation)
        return ArchivedSource(self._history, stream, start, self._poll_s)

    async def _bounds(self) -> StreamBounds:
        return await bounds_of(self._history, self.vhost, self.name)


async def bounds_of(history: History, vhost: str, name: str) -> StreamBounds:
    """Return the bounds of a stream. Raises StreamNotFoundError."""
    bounds = await history.bounds(vhost, name)
    if bounds is None:
        raise StreamNotFoundError(f"nothing is archived of stream {name!r} in vhost {vhost!r}")
    return bounds


class ArchivedSource:
    """The chunks of an archived stream. It ends with StreamNotFoundError if the stream is declared anew."""

    def __init__(self, history: History, stream: StreamId, start: Offset, poll_s: float) -> None:
        self._history = history
        self._stream = stream
        self._at = start
        self._poll_s = poll_s
        self._reading: ChunkReading | None = None
        self._tail = start

    @property
    def tail(self) -> Offset:
        """See ChunkSource."""
        return self._tail

    async def take(self) -> ServedChunk:
        """See ChunkSource."""
        while True:
            reading = self._reading or await self._begin()
            try:
                chunk = await anext(reading)
            except StopAsyncIteration:
                self._end()
                continue
            except asyncio.CancelledError:
                raise
            except BaseException:
                self._end()
                raise
            self._at = chunk.header.next_offset
            self._tail = max(self._tail, self._at)
            if chunk.header.type is ChunkType.USER:
                return served(chunk)

    def skip_to(self, offset: Offset) -> None:
        """See ChunkSource."""
        self._end()
        self._at = offset

    def rest(self) -> None:
        """See ChunkSource."""
        self._end()

    def close(self) -> None:
        """See ChunkSource."""
        self._end()

    async def _begin(self) -> ChunkReading:
        """Wait until something is archived from here on, and begin to read it."""
        vhost, name = self._stream.vhost, self._stream.name
        pause_s = _FIRST_PAUSE_S
        while True:
            bounds = await bounds_of(self._history, vhost, name)
            if bounds.incarnation != self._stream.incarnation:
                raise StreamNotFoundError(f"stream {name!r} in vhost {vhost!r} was declared anew")
            self._tail = max(self._tail, bounds.tail)
            if bounds.tail > self._at:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._poll_s)
        # What retention has removed meanwhile, the reading tells as a gap.
        reading = self._reading = self._history.read(vhost, name, bounds.incarnation, self._at)
        await reading.__aenter__()
        return reading

    def _end(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None


def served(chunk: Chunk) -> ServedChunk:
    """Copy out of a chunk what is delivered of it."""
    header = chunk.header
    return ServedChunk(header.chunk_id, header.next_offset, b"".join((header.to_bytes(), chunk.data)))
