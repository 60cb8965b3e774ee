"""The protocol source never mixes two incarnations of a stream."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from coldstream.agent.proof.incarnations import CLOCKS_APART_MS, Anchor
from coldstream.agent.recording import recorder, spool_writer
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.errors import StreamNotFoundError
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.support.protocol_log import SOON_S, Log, expected_of, rebuilt_in, start


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(spool_writer, "ROOM_POLL_S", 0.01)


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
        [{"timestamp": 1000 + CLOCKS_APART_MS + 1}],
        [{"epoch": 2}],
        [{"chunk_id": 15}, {}, {}],
        [{"chunk_id": 90, "epoch": 0}],
        [{"message": b"m" * 20}] * 3 + [{"message": b"n" * 20}],
    ],
    ids=["another chunk", "newer", "another epoch", "another border", "an older epoch", "other bytes"],
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
        new.add(*[chunk.get("message", b"m" * 20)] * 10, **{key: chunk[key] for key in chunk if key != "message"})
    async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
        await run.task
    assert [type(failure) for failure in run.failures] == [StreamNotFoundError]
    assert rebuilt_in(tmp_path) == expected_of(log)


ARCHIVED = Anchor(ChunkId(30), TimestampMs(1000), Offset(40))
"""Of a stream of which all up to offset 40 is archived, and nothing is here."""


@pytest.mark.parametrize(
    "again",
    [
        [{"timestamp": 1001}] * 6,
        [{"timestamp": 1000 + CLOCKS_APART_MS + 1}],
        [{"chunk_id": 25}, {}, {}],
        [{"chunk_id": 31}],
    ],
    ids=["another chunk", "newer", "another border", "a border behind"],
)
async def test_a_stream_declared_again_is_told_from_one_of_which_all_is_archived(tmp_path: Path, again) -> None:
    log = Log()
    run = start(log, tmp_path, ARCHIVED)
    await run.until(lambda: log.asked)
    for chunk in again:
        log.add(**chunk)
    async with asyncio.timeout(60):
        await run.task
    assert isinstance(run.failures[-1], StreamNotFoundError)
    assert rebuilt_in(tmp_path) == []


async def test_a_stream_archived_to_its_end_is_read_on_from_there(tmp_path: Path) -> None:
    log = Log()
    for _ in range(8):
        log.add()
    run = start(log, tmp_path, ARCHIVED)
    await run.until(lambda: run.closed)
    await run.stop()
    assert rebuilt_in(tmp_path) == expected_of(log)[4:8]
    assert run.failures == []


@pytest.mark.parametrize("anchor", [ARCHIVED, None], ids=["all archived", "all here"])
async def test_a_stream_whose_known_chunk_retention_deleted_is_another(tmp_path: Path, anchor: Anchor | None) -> None:
    log = Log()
    if anchor is None:
        for _ in range(4):
            log.add()
        run = start(log, tmp_path)
        await run.until(lambda: run.source.next_offset == 40)
        await run.stop()
        log.chunks.clear()
    log.add(chunk_id=70)
    run = start(log, tmp_path, *([] if anchor is None else [anchor]))
    async with asyncio.timeout(60):
        await run.task
    assert isinstance(run.failures[-1], StreamNotFoundError)
    assert run.lost == []


@pytest.mark.parametrize("timestamp", [999, 1001])
async def test_a_stream_declared_again_before_its_first_chunk_was_read_is_another(
    tmp_path: Path, timestamp: int
) -> None:
    log = Log()
    log.add(timestamp=timestamp)
    run = start(log, tmp_path, Anchor(ChunkId(0), TimestampMs(1000), Offset(0)))
    async with asyncio.timeout(60):
        await run.task
    assert isinstance(run.failures[-1], StreamNotFoundError)


async def test_a_stream_declared_again_while_the_spool_was_made_anew_is_not_mixed_with_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was read is archived and gone when the disk fails."""
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
        log.chunks.clear()
        for _ in range(5):
            log.add(timestamp=2000)
    async with asyncio.timeout(60):
        await run.task
    assert isinstance(run.failures[-1], StreamNotFoundError)
    assert rebuilt_in(tmp_path) == []
