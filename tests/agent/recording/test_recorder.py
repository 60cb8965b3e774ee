"""The protocol source: what is delivered is what is in the segments."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.proof.incarnations import Anchor
from coldstream.agent.recording import recorder, spool_writer
from coldstream.agent.recording.recorder import LOST
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.format.chunk import ChunkType
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.support.protocol_log import STREAM, Log, expected_of, rebuilt_in, start, users_in


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(spool_writer, "ROOM_POLL_S", 0.01)


async def test_segments_end_after_the_chunk_that_fills_them(tmp_path: Path) -> None:
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


async def test_recorded_chunks_are_the_delivered_ones_but_for_bloom_filters(tmp_path: Path) -> None:
    log = Log()
    log.add(trailer=b"\x00\x01p" + bytes(8))
    log.track(3)
    log.add(bloom=b"\x05" * 16)
    log.track()
    log.add(*[b"x" * 1000] * 3, bloom=b"\x05" * 255, trailer=b"\x00\x01p" + bytes(8))
    run = start(log, tmp_path)
    await run.until(lambda: run.closed)
    await run.stop()
    assert [chunk[2] for chunk in rebuilt_in(tmp_path)] == [
        b"".join((chunk.header.to_bytes(), b"\xff" * chunk.header.bloom_bytes, chunk.data, chunk.trailer))
        for chunk in log.chunks
    ]
    assert log.asked == [FIRST]


async def test_a_broker_that_does_not_know_what_is_asked_for_leaves_trailers_out_and_tracking_chunks_are_filled_in(
    tmp_path: Path,
) -> None:
    log = Log(is_unaware=True)
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
    assert log.asked == [FIRST] * 3


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


async def test_tracking_chunks_that_became_the_oldest_are_not_lost(tmp_path: Path) -> None:
    log = Log()
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    log.track()
    del log.chunks[0]
    log.add()
    await run.until(lambda: run.source.next_offset == 21)
    await run.stop()
    assert run.lost == []


async def test_tracking_chunks_before_the_first_message_are_the_streams_beginning(tmp_path: Path) -> None:
    log = Log()
    log.add(b"\x01\x01c" + bytes(8), kind=ChunkType.TRACKING_SNAPSHOT, chunk_id=500)
    log.track()
    log.add(*[b"x" * 1000])
    anchor = Anchor(ChunkId(502), TimestampMs(1000), Offset(502))
    run = start(log, tmp_path, anchor)
    await run.until(lambda: run.closed)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)
    assert (run.lost, run.failures) == ([], [])


async def test_offsets_not_proven_to_be_tracking_alone_are_reported_lost(tmp_path: Path) -> None:
    log = Log(is_unaware=True)
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 10)
    log.track()
    del log.chunks[0]
    log.add()
    await run.until(lambda: run.source.next_offset == 21)
    await run.stop()
    assert run.lost == [(10, 11, LOST)]


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


async def test_a_possible_loss_is_not_skipped_until_the_broker_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(is_unaware=True)
    log.add()
    log.track()
    log.add(*[b"x" * 1000])

    async def silent(stream: str, spec: OffsetSpec, *, timeout_s: float) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(log, "probe", silent)
        run = start(log, tmp_path)
        await run.until(lambda: len(run.failures) >= 2)
        assert run.source.next_offset == 10
    await run.until(lambda: run.closed and run.closed[-1].next_offset == 12)
    await run.stop()
    assert run.lost == []
    assert {str(failure) for failure in run.failures} == {f"{STREAM} does not deliver its oldest chunk"}
    assert users_in(tmp_path) == expected_of(log)


async def test_what_was_not_written_yet_when_all_is_begun_anew_is_read_again_and_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(is_unaware=True)
    log.add()
    log.track()
    log.add(*[b"x" * 1000])

    async def broken(stream: str, spec: OffsetSpec, *, timeout_s: float) -> None:
        raise OSError(errno.EIO, "not expected here")

    with monkeypatch.context() as patched:
        patched.setattr(log, "probe", broken)
        run = start(log, tmp_path)
        await run.until(lambda: len(run.failures) >= 2)
    await run.until(lambda: run.closed and run.closed[-1].next_offset == 12)
    await run.stop()
    assert users_in(tmp_path) == expected_of(log)


async def test_a_broker_that_stays_away_is_asked_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_RETRY_S", 0.1)
    run = start(Log(is_down=True), tmp_path)
    await asyncio.sleep(0.3)
    await run.stop()
    assert 3 <= len(run.failures) <= 9


async def test_many_tracking_chunks_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "BATCH_BYTES", 1000)
    monkeypatch.setattr(recorder, "BATCH_BYTES", 1000)
    written: list[int] = []
    append = SegmentSpool.append

    def measured(self: SegmentSpool, chunks: bytes, first_offset: Offset, next_offset: Offset) -> None:
        written.append(len(chunks))
        append(self, chunks, first_offset, next_offset)

    monkeypatch.setattr(SegmentSpool, "append", measured)
    log = Log(is_unaware=True)
    log.add()
    log.track(200)
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.closed)
    await run.stop()
    assert sum(written) > 10_000
    assert max(written) < 1500
