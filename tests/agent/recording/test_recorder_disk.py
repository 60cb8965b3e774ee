"""The protocol source and its disk: killed, stopped, full, and emptied by whoever archives."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
from pathlib import Path

import pytest

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.proof.incarnations import Anchor
from coldstream.agent.recording import recorder, spool_writer
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.errors import StreamNotFoundError
from coldstream.manifest.spec import AtOffset
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.support.protocol_log import SOON_S, STREAM, Log, expected_of, rebuilt_in, start, users_in


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(spool_writer, "ROOM_POLL_S", 0.01)


@pytest.mark.parametrize("is_unaware", [False, True])
@pytest.mark.parametrize("cut", [None, 0, 5, 8, 100, 300, 500])
async def test_a_run_that_was_killed_is_gone_on_with_no_gap_and_no_duplicate(
    tmp_path: Path, cut: int | None, *, is_unaware: bool
) -> None:
    log = Log(is_unaware=is_unaware)
    for _ in range(6):
        log.add()
        log.track()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset >= 65 and (tmp_path / f"{43:020}.segment.part").exists())
    await asyncio.sleep(SOON_S)
    await run.stop()
    part = tmp_path / f"{43:020}.segment.part"
    part.write_bytes(part.read_bytes()[:cut])
    log.add(*[b"x" * 1000])
    run = start(log, tmp_path)
    await run.until(lambda: run.closed and run.closed[-1].next_offset == log.next_offset)
    await run.stop()
    found = rebuilt_in(tmp_path)
    assert [chunk[0] for chunk in found] == [chunk.header.chunk_id for chunk in log.chunks]
    assert (users_in(tmp_path) if is_unaware else found) == expected_of(log)
    assert run.lost == []


async def test_a_later_start_than_the_spool_has_wins(tmp_path: Path) -> None:
    log = Log()
    for _ in range(12):
        log.add()
    run = start(log, tmp_path)
    await run.until(lambda: len(run.closed) == 3)
    await run.stop()
    for segment in run.closed[1:]:
        segment.path.unlink()
    anchor = Anchor(ChunkId(70), TimestampMs(1000), Offset(80))
    run = start(log, tmp_path, anchor)
    await run.until(lambda: len(run.closed) == 1)
    await run.stop()
    expected = expected_of(log)
    assert rebuilt_in(tmp_path) == expected[:4] + expected[8:]
    assert log.asked[-1] == AtOffset(Offset(70))


async def test_nothing_more_is_asked_for_while_the_spool_is_full(tmp_path: Path) -> None:
    log = Log()
    for _ in range(400):
        log.add(*[b"x" * 10_000])
    run = start(log, tmp_path, max_spool_bytes=100_000)
    await run.until(lambda: log.delivered * 10_000 >= spool_writer.BATCH_BYTES)
    await asyncio.sleep(SOON_S)
    delivered = log.delivered
    assert delivered * 10_000 < 100_000 + spool_writer.BATCH_BYTES
    await asyncio.sleep(SOON_S)
    assert log.delivered == delivered
    assert run.source._writer._spool.open_bytes == 0
    while run.source.next_offset < 400:
        for segment in run.closed:
            segment.path.unlink(missing_ok=True)
        await asyncio.sleep(0.005)
    await run.stop()
    covered = [(segment.first_offset, segment.next_offset) for segment in run.closed]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(covered))


async def test_an_open_segment_that_fills_the_spool_is_closed_or_nothing_would_ever_make_room(tmp_path: Path) -> None:
    log = Log()
    for _ in range(3):
        log.add(*[b"x" * 10_000])
    run = start(log, tmp_path, max_spool_bytes=15_000, segment_bytes=1 << 20)
    await run.until(lambda: run.closed)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)


async def test_segments_of_an_earlier_run_count_towards_the_spool(tmp_path: Path) -> None:
    log = Log()
    for _ in range(4):
        log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.closed)
    await run.stop()
    delivered = log.delivered
    log.add()
    run = start(log, tmp_path, max_spool_bytes=1000)
    await run.until(lambda: len(log.asked) == 2)
    await asyncio.sleep(SOON_S)
    assert log.delivered == delivered
    for path in segment_files(tmp_path).values():
        path.unlink()
    await run.until(lambda: run.source.next_offset == 50)
    await run.stop()


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


async def test_what_was_archived_and_let_go_before_the_disk_failed_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    for _ in range(4):
        log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.closed)
    run.closed[0].path.unlink()

    def full(self: SegmentSpool, chunks: bytes, first_offset: Offset, next_offset: Offset) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentSpool, "append", full)
        log.add()
        await run.until(lambda: run.failures)
    log.add(*[b"x" * 1000])
    await run.until(lambda: len(run.closed) == 2)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)[4:]
    assert {str(failure) for failure in run.failures} == {
        f"{STREAM} cannot be written to the spool: [Errno 28] no space"
    }
    assert log.asked[-1] == AtOffset(Offset(30))


async def test_what_ends_with_tracking_chunks_is_cut_back_to_a_chunk_of_the_streams(tmp_path: Path) -> None:
    """So that the stream can be told by it from one that was declared again."""
    log = Log()
    log.add()
    log.track(3)
    log.add()
    run = start(log, tmp_path)
    await run.until(lambda: run.source.next_offset == 23)
    await asyncio.sleep(SOON_S)
    await run.stop()
    part = tmp_path / f"{0:020}.segment.part"
    part.write_bytes(part.read_bytes()[:-10])
    new = Log()
    for _ in range(3):
        new.add(timestamp=1500)
    run = start(new, tmp_path)
    async with asyncio.timeout(60):
        await run.task
    assert isinstance(run.failures[-1], StreamNotFoundError)
    assert rebuilt_in(tmp_path) == expected_of(log)[:1]


async def test_a_recorder_cancelled_twice_still_waits_for_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    log.add()
    begun, may_end, written = threading.Event(), threading.Event(), threading.Event()
    append = SegmentSpool.append

    def slow(self: SegmentSpool, chunks: bytes, first_offset: Offset, next_offset: Offset) -> None:
        begun.set()
        may_end.wait(5)
        append(self, chunks, first_offset, next_offset)
        written.set()

    monkeypatch.setattr(SegmentSpool, "append", slow)
    run = start(log, tmp_path)
    await run.until(begun.is_set)
    for _ in range(2):
        run.task.cancel()
        await asyncio.sleep(SOON_S)
    assert not run.task.done()
    may_end.set()
    await asyncio.wait([run.task])
    assert written.is_set()
    assert run.task.cancelled()
