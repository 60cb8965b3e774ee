"""A direct stream as it is served: from this process's own handle if it writes it, else from snapshots."""

from __future__ import annotations

from collections import deque

from coldstream.errors import GapError, OffsetOutOfRangeError, StreamClosedError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader
from coldstream.gateway.alone.direct_host import DirectHost
from coldstream.gateway.alone.served_stream import ServedChunk, StreamFigures
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.streams import DirectStream, FetchedBatch
from coldstream.units import MIB, ChunkId, Offset, TimestampMs

_PAGE_BYTES = MIB // 4


class ServedDirectStream:
    """A direct stream of a name, whatever its incarnation."""

    is_direct = True

    def __init__(self, host: DirectHost, vhost: str, name: str) -> None:
        self.vhost = vhost
        self.name = name
        self._host = host
        self._incarnation: Incarnation | None = None

    async def attach(self, spec: OffsetSpec) -> Offset:
        """See ServedStream."""
        handle = await self._host.look(self.vhost, self.name)
        self._incarnation = handle.stream.incarnation
        match spec:
            case AtOffset(offset):
                return min(max(offset, handle.start), handle.confirmed)
            case AtTimestamp(timestamp):
                return await _at_timestamp(handle, timestamp)
        if spec == NEXT:
            return handle.confirmed
        if spec == LAST:
            last = await last_batch(handle)
            return handle.confirmed if last is None else last.base_offset
        assert spec == FIRST
        return handle.start

    async def figures(self) -> StreamFigures:
        """See ServedStream."""
        handle = await self._host.look(self.vhost, self.name)
        last = None if handle.start >= handle.confirmed else await last_batch(handle)
        last_id = handle.confirmed if last is None else last.base_offset
        return StreamFigures(handle.start, ChunkId(last_id), handle.confirmed)

    def source(self, start: Offset) -> DirectSource:
        """See ServedStream."""
        assert self._incarnation is not None
        return DirectSource(self._host, self.vhost, self.name, self._incarnation, start)


class DirectSource:
    """The batches of a direct stream. It ends with StreamNotFoundError if the stream is created anew."""

    def __init__(self, host: DirectHost, vhost: str, name: str, incarnation: Incarnation, start: Offset) -> None:
        self._host = host
        self._vhost = vhost
        self._name = name
        self._at = start
        self._tail = start
        self._page: deque[FetchedBatch] = deque()
        self._incarnation = incarnation

    @property
    def tail(self) -> Offset:
        """See ChunkSource."""
        return self._tail

    async def take(self) -> ServedChunk:
        """See ChunkSource."""
        while not self._page:
            handle = await self._handle()
            confirmed = handle.confirmed
            try:
                self._page.extend(await handle.fetch(self._at, confirmed, _PAGE_BYTES))
            except OffsetOutOfRangeError as err:
                raise GapError(err.stream, self._at, err.start, "trimmed, or removed by retention") from err
            except StreamClosedError:
                self._host.drop(handle)  # lost to another process, or closed as nobody published
                continue
            if not self._page:
                self._at = max(self._at, confirmed)  # nothing but what is kept of publishers
        batch = self._page.popleft()
        self._at = batch.next_offset
        return ServedChunk(ChunkId(batch.base_offset), batch.next_offset, delivered(batch.chunk))

    def skip_to(self, offset: Offset) -> None:
        """See ChunkSource."""
        self._page.clear()
        self._at = offset

    def rest(self) -> None:
        """See ChunkSource."""
        if self._page:
            self._at = self._page[0].base_offset
            self._page.clear()

    def close(self) -> None:
        """See ChunkSource."""
        self._page.clear()

    async def _handle(self) -> DirectStream:
        """Return a handle that has something from here on, once there is one."""
        handle = await self._host.beyond(self._vhost, self._name, self._incarnation, self._at)
        self._tail = max(self._tail, handle.confirmed)
        return handle


def delivered(chunk: bytes) -> bytes:
    """Return what a broker delivers of a chunk: header and data, neither bloom filter nor trailer."""
    header = ChunkHeader.from_bytes(chunk, source="batch", position=0)
    begin = CHUNK_HEADER_BYTES + header.bloom_bytes
    end = begin + header.data_bytes
    if not header.bloom_bytes:
        return chunk[:end]
    return chunk[:CHUNK_HEADER_BYTES] + chunk[begin:end]


async def last_batch(handle: DirectStream) -> FetchedBatch | None:
    """Return the last batch with messages, None if there is none. Cost: that of a fetch or two."""
    at = handle.confirmed
    while at > handle.start:
        batch = await _batch_at(handle, Offset(at - 1))
        if batch is not None:
            return batch
        at = Offset(at - 1)  # what is kept of publishers takes one offset
    return None


async def _at_timestamp(handle: DirectStream, timestamp: TimestampMs) -> Offset:
    """Return where the first batch at or after a moment begins, the tail if there is none. Cost: some 30 fetches.

    Timestamps never fall along a direct stream, so halving finds it.
    """
    low, high = handle.start, handle.confirmed
    while low < high:
        middle = Offset((low + high) // 2)
        found = await _next_batch(handle, middle, high)
        if found is None:
            high = middle
        elif found.timestamp >= timestamp:
            # It may begin before the middle, or after it.
            high = min(found.base_offset, middle)
        else:
            low = found.next_offset
    return low


async def _next_batch(handle: DirectStream, at: Offset, end: Offset) -> FetchedBatch | None:
    found = await handle.fetch(at, end, 1)
    return found[0] if found else None


async def _batch_at(handle: DirectStream, at: Offset) -> FetchedBatch | None:
    return await _next_batch(handle, at, Offset(at + 1))
