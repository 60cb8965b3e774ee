"""The protocol source, with a broker that is only a list of chunks."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coldstream.agent import protocol
from coldstream.agent.pins import segment_files
from coldstream.agent.protocol import LOST, ProtocolSource
from coldstream.agent.rebuild import rebuilt
from coldstream.agent.spool import ClosedSegment, SegmentSpool
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
    """A stream at a broker that delivers its user chunks to whoever asks."""

    chunks: list[Chunk] = field(default_factory=list)
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
    ) -> None:
        _, encoded = make_chunk(
            messages or [b"m" * 20] * 10,
            chunk_id=ChunkId(self.next_offset if chunk_id is None else chunk_id),
            timestamp=TimestampMs(timestamp),
            epoch=Epoch(epoch),
            kind=kind,
            trailer=trailer,
        )
        self.chunks += iter_chunks(encoded, source="log")
        self.news.set()

    def track(self, times: int = 1) -> None:
        for _ in range(times):
            self.add(b"\x01\x01c" + bytes(8), kind=ChunkType.TRACKING_DELTA)

    def users(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.header.type is ChunkType.USER]

    @asynccontextmanager
    async def connect(self):
        if self.is_down:
            raise UnavailableError("down")
        yield self

    @asynccontextmanager
    async def subscribe(self, stream: str, spec: OffsetSpec, *, credits: int):  # noqa: A002  the field's word
        assert stream == STREAM.name
        self.asked.append(spec)
        assert isinstance(spec, AtOffset)
        yield Delivery(self, spec.offset)

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
        return sum(chunk.header.next_offset > self._offset for chunk in self._log.users())

    async def __anext__(self) -> Chunk:
        while True:
            if self._log.is_down:
                raise UnavailableError("down")
            if self._log.is_deleted:
                raise StreamNotFoundError("deleted")
            for chunk in self._log.users():
                if chunk.header.next_offset > self._offset:
                    self._offset = chunk.header.next_offset
                    self._log.delivered += 1
                    return chunk
            self._log.news.clear()
            await self._log.news.wait()


@dataclass
class Run:
    """A source that runs, and what it says."""

    source: ProtocolSource
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


def start(log: Log, directory: Path, at: int = 0, **settings) -> Run:
    closed, lost, failures = [], [], []
    source = ProtocolSource(
        log.connect,
        STREAM,
        directory,
        Offset(at),
        on_closed=closed.append,
        on_lost=lambda *what: lost.append(what),
        on_failure=failures.append,
        **{"max_spool_bytes": 1 << 30, "segment_bytes": 1000, **settings},
    )
    return Run(source, asyncio.create_task(source.run()), closed, lost, failures)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(protocol, "ROOM_POLL_S", 0.01)


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
    return [(int(chunk.header.chunk_id), ChunkType.USER, rebuilt(chunk)) for chunk in log.users()]


def users_in(directory: Path) -> list[tuple[int, ChunkType, bytes]]:
    return [chunk for chunk in rebuilt_in(directory) if chunk[1] is ChunkType.USER]


async def test_segments_end_behind_the_chunk_that_fills_them(tmp_path: Path) -> None:
    log = Log()
    for _ in range(20):
        log.add()  # 288 bytes: four to a segment
    run = start(log, tmp_path)
    await run.until(lambda: len(run.closed) == 5)
    await run.stop()
    assert [(segment.first_offset, segment.next_offset) for segment in run.closed] == [
        (first, first + 40) for first in range(0, 200, 40)
    ]
    assert [segment.path for segment in run.closed] == list(segment_files(tmp_path).values())
    assert rebuilt_in(tmp_path) == expected_of(log)
    assert run.lost == run.failures == []


async def test_trailers_are_left_out_and_tracking_chunks_are_filled_in(tmp_path: Path) -> None:
    log = Log()
    log.add(trailer=b"\x00\x01p" + bytes(8))
    log.track(3)
    log.add()
    log.track()
    log.add(*[b"x" * 1000] * 3)
    run = start(log, tmp_path)
    await run.until(lambda: run.closed)
    await run.stop()
    assert [chunk[:2] for chunk in rebuilt_in(tmp_path)] == [
        (chunk.header.chunk_id, ChunkType(min(chunk.header.type, 1))) for chunk in log.chunks
    ]
    assert users_in(tmp_path) == expected_of(log)
    assert run.lost == []
    assert log.asked.count(FIRST) == 2


async def test_offsets_that_retention_deleted_are_told_and_end_the_segment(tmp_path: Path) -> None:
    log = Log()
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    first = log.chunks.pop()
    log.add(chunk_id=50)
    log.add(*[b"x" * 1000])
    await run.until(lambda: len(run.closed) == 2)
    await run.stop()
    assert run.lost == [(10, 50, LOST)]
    assert [(segment.first_offset, segment.next_offset) for segment in run.closed] == [(0, 10), (50, 61)]
    log.chunks.insert(0, first)
    assert rebuilt_in(tmp_path) == expected_of(log)


async def test_what_cannot_be_proven_to_be_tracking_alone_is_told_as_lost(tmp_path: Path) -> None:
    log = Log()
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    log.track()
    del log.chunks[0]
    log.add()
    await run.until(lambda: run.source.next_offset == 21)
    await run.stop()
    assert run.lost == [(10, 11, LOST)]


@pytest.mark.parametrize("cut", [None, 0, 5, 8, 100, 300, 500])
async def test_a_run_that_was_killed_is_gone_on_with_no_gap_and_no_duplicate(tmp_path: Path, cut: int | None) -> None:
    log = Log()
    for _ in range(6):
        log.add()
        log.track()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 65 and (tmp_path / f"{43:020}.segment.part").exists())
    await asyncio.sleep(SOON_S)
    await run.stop()
    part = tmp_path / f"{43:020}.segment.part"
    part.write_bytes(part.read_bytes()[:cut])
    log.add(*[b"x" * 1000])
    run = start(log, tmp_path)
    await run.until(lambda: run.closed and run.closed[-1].next_offset == log.next_offset)
    await run.stop()
    assert users_in(tmp_path) == expected_of(log)
    offsets = [chunk[0] for chunk in rebuilt_in(tmp_path)]
    assert offsets == [chunk.header.chunk_id for chunk in log.chunks]
    assert run.lost == []


async def test_a_later_start_than_the_spool_has_wins(tmp_path: Path) -> None:
    log = Log()
    for _ in range(12):
        log.add()
    run = start(log, tmp_path)
    await run.until(lambda: len(run.closed) == 3)
    await run.stop()
    for segment in run.closed:
        segment.path.unlink()
    run = start(log, tmp_path, at=80)
    await run.until(lambda: len(run.closed) == 1)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)[8:]


async def test_a_lost_connection_is_told_and_made_again(tmp_path: Path) -> None:
    log = Log()
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    log.is_down = True
    log.news.set()
    await run.until(lambda: len(run.failures) >= 3)
    assert [segment.next_offset for segment in run.closed] == [10]
    log.is_down = False
    log.add()
    await run.until(lambda: run.source.next_offset == 20)
    log.is_down = True
    log.news.set()
    await run.until(lambda: len(run.closed) == 2)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)
    assert {str(failure) for failure in run.failures} == {"down"}


async def test_a_replica_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    log = Log()
    for _ in range(5):
        log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 50)
    await run.stop()
    behind = Log(log.chunks[:2])
    run = start(behind, tmp_path)
    await asyncio.sleep(SOON_S)
    for chunk in log.chunks[2:]:
        behind.chunks.append(chunk)
    behind.add(*[b"x" * 1000])
    await run.until(lambda: run.closed and run.closed[-1].next_offset == 51)
    await run.stop()
    assert run.failures == []
    assert rebuilt_in(tmp_path) == expected_of(behind)


@pytest.mark.parametrize(
    "again",
    [
        [{"timestamp": 1001}] * 9,
        [{"timestamp": 1000 + protocol.CLOCKS_APART_MS + 1}],
        [{"epoch": 2}],
        [{"chunk_id": 15}, {}, {}],
        [{"chunk_id": 90, "epoch": 0}],
    ],
    ids=["another chunk", "newer", "another epoch", "another border", "an older epoch"],
)
async def test_a_stream_that_was_declared_again_is_not_mixed_with_the_old_one(tmp_path: Path, again) -> None:
    log = Log()
    for _ in range(4):
        log.add()
    run = start(log, tmp_path)
    await run.until(lambda: len(run.closed) == 1)
    await run.stop()
    before = rebuilt_in(tmp_path)
    new = Log()
    run = start(new, tmp_path)
    await run.until(lambda: new.asked)
    for chunk in again:
        new.add(**chunk)
    async with asyncio.timeout(5):
        await run.task
    assert isinstance(run.failures[-1], StreamNotFoundError)
    assert rebuilt_in(tmp_path) == before


async def test_a_deleted_stream_ends_the_run_with_all_that_was_read(tmp_path: Path) -> None:
    log = Log()
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    log.is_deleted = True
    log.news.set()
    async with asyncio.timeout(5):
        await run.task
    assert [type(failure) for failure in run.failures] == [StreamNotFoundError]
    assert rebuilt_in(tmp_path) == expected_of(log)


async def test_nothing_more_is_asked_for_while_the_spool_is_full(tmp_path: Path) -> None:
    log = Log()
    for _ in range(400):
        log.add(*[b"x" * 10_000])
    run = start(log, tmp_path, max_spool_bytes=100_000)
    await run.until(lambda: log.delivered * 10_000 >= protocol.BATCH_BYTES)
    await asyncio.sleep(SOON_S)
    delivered = log.delivered
    assert delivered * 10_000 < 100_000 + protocol.BATCH_BYTES
    await asyncio.sleep(SOON_S)
    assert log.delivered == delivered
    assert run.source._spool.open_bytes == 0
    while run.source.next_offset < 400:
        for segment in run.closed:
            segment.path.unlink(missing_ok=True)
        await asyncio.sleep(0.005)
    await run.stop()
    covered = [(segment.first_offset, segment.next_offset) for segment in run.closed]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(covered))


async def test_a_full_disk_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    await asyncio.sleep(SOON_S)

    def full(self: SegmentSpool, chunks: bytes, first_offset: Offset, next_offset: Offset) -> None:
        assert self._file is not None
        self._file.write(chunks[:100])
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentSpool, "append", full)
        log.add()
        await run.until(lambda: run.failures)
    log.add(*[b"x" * 1000])
    await run.until(lambda: run.source.next_offset == 21 and len(run.closed) == 2)
    await run.stop()
    assert all("no space" in str(failure) for failure in run.failures)
    assert rebuilt_in(tmp_path) == expected_of(log)


async def test_a_span_of_time_that_is_over_closes_the_segment_when_nothing_more_comes(tmp_path: Path) -> None:
    clock = [TimestampMs(10_000)]
    log = Log()
    log.add(timestamp=10_010)
    run = start(log, tmp_path, every_ms=40, now=lambda: clock[0])
    await run.until(lambda: run.source.next_offset == 10)
    clock[0] = TimestampMs(10_079)
    await asyncio.sleep(0.1)
    assert run.closed == []
    clock[0] = TimestampMs(10_080)
    await run.until(lambda: run.closed)
    await run.stop()


async def test_a_time_border_ends_the_segment_at_the_streams_end_only(tmp_path: Path) -> None:
    now = TimestampMs(10_000_000)
    log = Log()
    for at in range(3):
        log.add(b"old", timestamp=at * 1000)
    for at in range(4):
        log.add(b"new", timestamp=now - 100 + at * 50)
    log.track()
    log.add(b"newest", timestamp=now + 1000)
    run = start(log, tmp_path, every_ms=1000, now=lambda: now)
    await run.until(lambda: run.source.next_offset == log.next_offset)
    await run.stop()
    SegmentSpool(tmp_path).recover()
    assert list(segment_files(tmp_path)) == [0, 3, 5, 7]
    assert users_in(tmp_path) == expected_of(log)
