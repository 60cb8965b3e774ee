"""The protocol source with a broker that is only a list of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.proof.incarnations import Anchor
from coldstream.agent.recording.recorded_chunk import record_chunk
from coldstream.agent.recording.recorder import StreamRecorder
from coldstream.agent.recording.spool import ClosedSegment
from coldstream.errors import ColdstreamError, StreamNotFoundError, UnavailableError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.scanner import ChunkEnd, SegmentScanner
from coldstream.format.writer import make_chunk
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
SOON_S = 0.02


@dataclass
class Log:
    """A stream at a broker that delivers its user chunks, and to who asks for them also others, and trailers.

    One that `is_unaware` does not know what is asked for.
    """

    chunks: list[Chunk] = field(default_factory=list)
    is_unaware: bool = False
    is_down: bool = False
    is_deleted: bool = False
    asked: list[OffsetSpec] = field(default_factory=list)
    delivered: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def next_offset(self) -> int:
        return self.chunks[-1].header.next_offset if self.chunks else 0

    def add(
        self,
        *messages: bytes,
        kind: ChunkType = ChunkType.USER,
        timestamp: int = 1000,
        epoch: int = 1,
        chunk_id: int | None = None,
        trailer: bytes = b"",
        bloom: bytes = b"",
    ) -> None:
        _, encoded = make_chunk(
            messages or [b"m" * 20] * 10,
            chunk_id=ChunkId(self.next_offset if chunk_id is None else chunk_id),
            timestamp=TimestampMs(timestamp),
            epoch=Epoch(epoch),
            kind=kind,
            trailer=trailer,
            bloom=bloom,
        )
        self.chunks += iter_chunks(encoded, source="log")
        self.news.set()

    def track(self, times: int = 1) -> None:
        for _ in range(times):
            self.add(b"\x01\x01c" + bytes(8), kind=ChunkType.TRACKING_DELTA)

    def users(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.header.type is ChunkType.USER]

    def given(self) -> list[Chunk]:
        """Return the chunks as they are delivered to who asks for every one."""
        if not self.is_unaware:
            return [replace(chunk, bloom=memoryview(b"")) for chunk in self.chunks]
        return [replace(chunk, bloom=memoryview(b""), trailer=memoryview(b"")) for chunk in self.users()]

    @asynccontextmanager
    async def connect(self):
        if self.is_down:
            raise UnavailableError("down")
        yield self

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec, *, credits: int, every_chunk: bool):  # noqa: A002  the field's word
        assert stream == STREAM.name
        self.asked.append(spec)
        assert every_chunk
        yield Delivery(self, spec.offset if isinstance(spec, AtOffset) else 0)

    async def probe(self, stream: str, spec: OffsetSpec, *, timeout_s: float) -> Chunk | None:
        assert spec is FIRST
        self.asked.append(spec)
        return next(iter(self.users()), None)


class Delivery:
    """What one subscription is given."""

    def __init__(self, log: Log, offset: int) -> None:
        self._log = log
        self._offset = min(offset, log.next_offset)

    @property
    def waiting(self) -> int:
        return sum(chunk.header.next_offset > self._offset for chunk in self._log.given())

    async def __anext__(self) -> Chunk:
        while True:
            if self._log.is_down:
                raise UnavailableError("down")
            if self._log.is_deleted:
                raise StreamNotFoundError("deleted")
            for chunk in self._log.given():
                if chunk.header.next_offset > self._offset:
                    self._offset = chunk.header.next_offset
                    self._log.delivered += 1
                    return chunk
            self._log.news.clear()
            await self._log.news.wait()


@dataclass
class Run:
    """A source that runs, and what it says."""

    source: StreamRecorder
    task: asyncio.Task[None]
    closed: list[ClosedSegment]
    lost: list[tuple[int, int, str]]
    failures: list[ColdstreamError]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110  conditions of all kinds
                await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def start(log: Log, directory: Path, anchor: Anchor | None = None, **settings) -> Run:
    """Run a source; the anchor is the first chunk unless given."""
    if anchor is None:
        first = log.chunks[0].header if log.chunks else None
        anchor = Anchor(ChunkId(0), TimestampMs(1000 if first is None else first.timestamp), Offset(0))
    closed, lost, failures = [], [], []
    source = StreamRecorder(
        log.connect,
        STREAM,
        directory,
        anchor,
        on_closed=closed.append,
        on_lost=lambda *what: lost.append(what),
        on_failure=failures.append,
        **{"max_spool_bytes": 1 << 30, "segment_bytes": 1000, **settings},
    )
    return Run(source, asyncio.create_task(source.run()), closed, lost, failures)


def rebuilt_in(directory: Path) -> list[tuple[int, ChunkType, bytes]]:
    """Check every segment, and return the id, type and bytes of each chunk."""
    found = []
    for first_offset, path in segment_files(directory).items():
        scanner = SegmentScanner(path.name, first_offset=first_offset)
        content = path.read_bytes()
        for event in scanner.feed(content):
            if isinstance(event, ChunkEnd):
                header = event.header
                whole = content[event.position : event.position + header.total_bytes]
                found.append((int(header.chunk_id), header.type, whole))
        scanner.close()
    return found


def expected_of(log: Log) -> list[tuple[int, ChunkType, bytes]]:
    return [(int(chunk.header.chunk_id), chunk.header.type, record_chunk(chunk)) for chunk in log.given()]


def users_in(directory: Path) -> list[tuple[int, ChunkType, bytes]]:
    return [chunk for chunk in rebuilt_in(directory) if chunk[1] is ChunkType.USER]
