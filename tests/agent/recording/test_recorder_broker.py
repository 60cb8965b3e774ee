"""The protocol source beside real brokers: what it rebuilds is what is on the broker's disk."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path
from typing import Self

import pytest
from rstream import CompressionType

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.proof.incarnations import Anchor
from coldstream.agent.recording import spool_writer
from coldstream.agent.recording.recorder import LOST, StreamRecorder
from coldstream.agent.recording.spool import ClosedSegment, SegmentSpool
from coldstream.errors import ColdstreamError, StreamNotFoundError
from coldstream.format.chunk import Chunk, ChunkType, iter_chunks
from coldstream.format.scanner import SegmentScanner
from coldstream.format.segment import SEGMENT_HEADER_BYTES, first_offset_of
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.manifest.spec import FIRST
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.releases import HOST_RELEASE
from tests.support.streams import StreamConnection, SubBatch

SEGMENT_BYTES = 100_000


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "ROOM_POLL_S", 0.05)


class Run:
    """A source that runs while its context is entered."""

    def __init__(self, broker: Broker, name: str, directory: Path, **settings) -> None:
        self._address = BrokerAddress(((broker.host, broker.stream_port),))
        self._stream = StreamId("/", name, Incarnation(f"__{name}_1763700000000000000"))
        self._directory = directory
        self._settings = {"segment_bytes": 50_000, "max_spool_bytes": 1 << 30, **settings}
        self.closed: list[ClosedSegment] = []
        self.lost: list[tuple[int, int, str]] = []
        self.failures: list[ColdstreamError] = []

    async def __aenter__(self) -> Self:
        async with LiveConnection(self._address, "/") as connection:
            first = await connection.probe(self._stream.name, FIRST, timeout_s=5)
        assert first is not None
        self.source = StreamRecorder(
            lambda: LiveConnection(self._address, "/"),
            self._stream,
            self._directory,
            Anchor(first.header.chunk_id, first.header.timestamp, Offset(first.header.chunk_id)),
            on_closed=self.closed.append,
            on_lost=lambda *what: self.lost.append(what),
            on_failure=self.failures.append,
            **self._settings,
        )
        self.task = asyncio.create_task(self.source.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def until(self, next_offset: int) -> None:
        async with asyncio.timeout(60):
            while self.source.next_offset < next_offset:  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(0.01)


def chunks_in(directory: Path) -> list[Chunk]:
    """Return all chunks, each segment checked whole."""
    found: list[Chunk] = []
    for first_offset, path in segment_files(directory).items():
        content = path.read_bytes()
        scanner = SegmentScanner(path.name, first_offset=first_offset)
        for _ in scanner.feed(content):
            pass
        scanner.close()
        found += iter_chunks(content[SEGMENT_HEADER_BYTES:], source=path.name)
    return found


def publish_all_kinds(streams: StreamConnection, name: str, rounds: int, *, filters: bool = False) -> None:
    for at in range(rounds):
        if filters:
            streams.publish(name, [b"filtered %d" % at * 20] * 30, filter_value=f"region {at}")
        streams.publish(name, [b"plain %d" % at * 20] * 30)
        streams.publish(name, [b"deduplicated %d" % at * 20] * 30, publisher="p")
        streams.publish(
            name, [SubBatch([b"packed %d" % at * 20] * 20, kind) for kind in (CompressionType.No, CompressionType.Gzip)]
        )
        for consumer in range(at % 3):
            streams.store_offset(name, f"consumer {consumer}", at)


def cut_short(directory: Path, dice: random.Random) -> int:
    """Do to the open segment what a crash may do; return how many there are."""
    parts = list(directory.glob("*.part"))
    for part in parts:
        content = part.read_bytes()
        part.write_bytes(content[: dice.randrange(len(content) + 1)])
    return len(parts)


def assert_same(rebuilt_chunks: list[Chunk], broker_chunks: list[Chunk]) -> None:
    """Every byte is the broker's, but those of bloom filters, whose bits are all set."""
    assert [written(chunk, bytes(chunk.bloom)) for chunk in rebuilt_chunks] == [
        written(chunk, b"\xff" * chunk.header.bloom_bytes) for chunk in broker_chunks
    ]


def written(chunk: Chunk, bloom: bytes) -> bytes:
    return b"".join((chunk.header.to_bytes(), bloom, chunk.data, chunk.trailer))


async def test_all_kinds_of_chunks_are_rebuilt_as_they_are_on_the_brokers_disk(
    any_broker: Broker, tmp_path: Path
) -> None:
    name = "protocol-kinds"
    has_filters = any_broker.release is not HOST_RELEASE

    def prepare() -> list[Chunk]:
        with any_broker.connect() as streams:
            streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)
            publish_all_kinds(streams, name, 20, filters=has_filters)
            streams.publish(name, [b"the end"])
            streams.store_offset(name, "the last thing in the stream", 1)
        return chunks_in(any_broker.stream_directory(name))

    on_disk = await asyncio.to_thread(prepare)
    assert {chunk.header.type for chunk in on_disk} == set(ChunkType)
    assert any(chunk.header.trailer_bytes for chunk in on_disk)
    assert any(chunk.header.bloom_bytes for chunk in on_disk) is has_filters
    assert on_disk[-1].header.type is ChunkType.TRACKING_DELTA
    async with Run(any_broker, name, tmp_path, every_ms=1000) as run, asyncio.timeout(60):
        while not run.closed or run.closed[-1].next_offset < on_disk[-1].header.next_offset:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.01)
    assert len(run.closed) > 2
    assert_same(chunks_in(tmp_path), on_disk)
    assert (run.lost, run.failures) == ([], [])


def test_brokers_take_the_filter_of_a_rebuilt_chunk_for_one_that_matches_anything(any_broker: Broker) -> None:
    if any_broker.release is HOST_RELEASE:
        return  # 3.10 has no filters
    found = any_broker.ctl(
        "eval",
        "Match = fun Match(Filter, Matcher) -> case osiris_bloom:is_match(Filter, Matcher) of"
        " {retry_with, Other} -> Match(Filter, Other); Is -> Is end end,"
        ' [Match(binary:copy(<<Byte>>, Size), osiris_bloom:init_matcher(#{filters => [<<"any">>], '
        " match_unfiltered => Unfiltered})) || Byte <- [255, 0], Size <- [16, 255], Unfiltered <- [true, false]].",
    )
    assert found.strip() == "[true,true,true,true,false,false,false,false]"


async def test_runs_that_are_killed_at_any_moment_leave_no_gap_and_no_duplicate(broker: Broker, tmp_path: Path) -> None:
    name, dice = "protocol-killed", random.Random(7)

    def prepare() -> None:
        with broker.connect() as streams:
            streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)
            streams.publish(name, [b"the start"])

    def publish() -> None:
        with broker.connect() as streams:
            publish_all_kinds(streams, name, 40)
            streams.publish(name, [b"the end"])

    await asyncio.to_thread(prepare)
    publishing = asyncio.create_task(asyncio.to_thread(publish))
    runs = 0
    while not publishing.done() or not runs:
        async with Run(broker, name, tmp_path) as run:
            await asyncio.sleep(dice.uniform(0.01, 0.2))
        assert (run.lost, run.failures) == ([], [])
        runs += cut_short(tmp_path, dice)
    await publishing
    on_disk = await asyncio.to_thread(lambda: chunks_in(broker.stream_directory(name)))
    async with Run(broker, name, tmp_path) as run:
        await run.until(on_disk[-1].header.next_offset)
    SegmentSpool(tmp_path).recover()
    assert on_disk[-1].header.type is ChunkType.USER
    assert_same(chunks_in(tmp_path), on_disk)


async def test_offsets_that_retention_deletes_before_they_are_read_are_reported(broker: Broker, tmp_path: Path) -> None:
    name = "protocol-overtaken"

    def publish(streams: StreamConnection) -> None:
        for _ in range(100):
            streams.publish(name, [b"z" * 1000] * 10)

    def publish_until_retained() -> None:
        directory = broker.stream_directory(name)
        with broker.connect() as streams:
            while min(first_offset_of(path.name) or 0 for path in directory.glob("*.segment")) <= 3000:
                publish(streams)

    def prepare() -> None:
        with broker.connect() as streams:
            streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=4 * SEGMENT_BYTES)
            streams.publish(name, [b"z" * 1000] * 10)

    await asyncio.to_thread(prepare)
    async with Run(broker, name, tmp_path, max_spool_bytes=5000) as run:
        await run.until(1)  # not all ten: if the broker makes two chunks of them, the first one fills the spool
        await asyncio.to_thread(publish_until_retained)
        async with asyncio.timeout(60):
            while not run.lost or run.closed[-1].first_offset < run.lost[0][1]:
                for segment in run.closed:
                    segment.path.unlink(missing_ok=True)
                await asyncio.sleep(0.01)
    (lost,) = run.lost
    assert lost[2] == LOST
    assert lost[1] - lost[0] > 1000
    told = sorted([(segment.first_offset, segment.next_offset) for segment in run.closed] + [lost[:2]])
    assert all(before[1] == after[0] for before, after in itertools.pairwise(told))
    assert run.failures == []


async def test_a_deleted_stream_ends_the_run(broker: Broker, tmp_path: Path) -> None:
    name = "protocol-deleted"

    def prepare() -> None:
        with broker.connect() as streams:
            streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES)
            streams.publish(name, [b"only"])

    def delete() -> None:
        with broker.connect() as streams:
            streams.delete_stream(name)

    await asyncio.to_thread(prepare)
    async with Run(broker, name, tmp_path) as run:
        await run.until(1)
        await asyncio.to_thread(delete)
        async with asyncio.timeout(60):
            await run.task
    assert [type(failure) for failure in run.failures] == [StreamNotFoundError]
    assert [chunk.header.next_offset for chunk in chunks_in(tmp_path)] == [1]
