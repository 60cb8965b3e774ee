"""The protocol source ends segments at time borders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coldstream.agent.disk.pins import segment_files
from coldstream.agent.recording import recorder, spool_writer, time_spans
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.units import TimestampMs
from tests.support.protocol_log import Log, expected_of, rebuilt_in, start, users_in


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(spool_writer, "ROOM_POLL_S", 0.01)


async def test_a_span_of_time_that_is_over_closes_the_segment_when_nothing_more_comes(tmp_path: Path) -> None:
    clock = [TimestampMs(10_000)]
    log = Log()
    log.add(timestamp=10_010)
    run = start(log, tmp_path, every_ms=1000, now=lambda: clock[0])
    await run.until(lambda: run.source.next_offset == 10)
    clock[0] = TimestampMs(11_999)
    await asyncio.sleep(0.6)
    assert run.closed == []
    clock[0] = TimestampMs(12_000)
    await run.until(lambda: run.closed)
    await run.stop()


@pytest.mark.parametrize("is_unaware", [False, True])
async def test_a_time_border_ends_the_segment_at_the_streams_end_only(tmp_path: Path, *, is_unaware: bool) -> None:
    now = TimestampMs(10_000_000)
    log = Log(is_unaware=is_unaware)
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
    assert (users_in(tmp_path) if is_unaware else rebuilt_in(tmp_path)) == expected_of(log)


async def test_tracking_chunks_after_the_last_message_are_in_its_segment(tmp_path: Path) -> None:
    clock = [TimestampMs(10_000)]
    log = Log()
    log.add(timestamp=10_010)
    log.track(2)
    run = start(log, tmp_path, every_ms=1000, now=lambda: clock[0])
    await run.until(lambda: run.source.next_offset == 12)
    assert run.closed == []
    clock[0] = TimestampMs(12_000)
    await run.until(lambda: run.closed)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)


async def test_stored_offsets_that_keep_coming_keep_no_message_waiting(tmp_path: Path) -> None:
    log = Log()
    log.add(timestamp=1000)
    run = start(log, tmp_path, every_ms=100)
    async with asyncio.timeout(60):
        while not run.closed:
            log.track()
            await asyncio.sleep(0.01)
    await run.stop()


async def test_tracking_chunks_alone_are_a_segment_after_many_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    log.add(timestamp=1000)
    run = start(log, tmp_path, every_ms=50)
    await run.until(lambda: run.closed)
    log.track(3)
    await run.until(lambda: run.source.next_offset == 13)
    await asyncio.sleep(0.3)
    assert len(run.closed) == 1
    monkeypatch.setattr(time_spans, "TRACKING_SPANS", 3)
    await run.until(lambda: len(run.closed) == 2)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)


async def test_segments_of_tracking_chunks_alone_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_spans, "TRACKING_SPANS", 1)
    log = Log()
    log.add(timestamp=1000)
    run = start(log, tmp_path, every_ms=50)
    await run.until(lambda: run.closed)
    log.track(3)
    await run.until(lambda: len(run.closed) == 2)
    await run.stop()
    log.add(*[b"x" * 1000])
    run = start(log, tmp_path)
    await run.until(lambda: run.closed)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)
    assert (run.lost, run.failures) == ([], [])


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
@pytest.mark.parametrize("pause_s", [0.01, 0.15], ids=["busy", "now and then"])
async def test_segments_are_closed_in_time_whatever_the_clocks_say(
    tmp_path: Path, ahead_ms: int, pause_s: float
) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()

    def ours() -> TimestampMs:
        return TimestampMs(10_000_000 + int(1000 * (loop.time() - begin)))

    log = Log()
    log.add(b"x", timestamp=ours() + ahead_ms)
    run = start(log, tmp_path, every_ms=50, now=ours, segment_bytes=1 << 20)
    async with asyncio.timeout(60):
        while len(run.closed) < 3:
            await asyncio.sleep(pause_s)
            log.add(b"x", timestamp=ours() + ahead_ms)
    await run.stop()
    assert loop.time() - begin < 2


async def test_a_segment_after_which_nothing_comes_is_closed_in_time_though_its_leaders_clock_is_ahead(
    tmp_path: Path,
) -> None:
    log = Log()
    log.add(timestamp=10_000_000 + 3_600_000)
    run = start(log, tmp_path, every_ms=50, now=lambda: TimestampMs(10_000_000))
    await run.until(lambda: run.closed)
    await run.stop()
