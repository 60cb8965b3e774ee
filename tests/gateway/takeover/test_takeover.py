"""Subscriptions that begin in the archive, and go on at the broker."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.format.chunk import Chunk, ChunkType
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import StreamStats, Subscribe
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset, TimestampMs
from tests.support.fake_stream_broker import FakeLog
from tests.support.made_chunks import made_chunk, made_chunks
from tests.support.takeover_rig import TakeoverRig, user_chunks


def chunks_with_tracking(number: int) -> list[Chunk]:
    """Make chunks of which every third is a tracking chunk."""
    made: list[Chunk] = []
    at = 0
    for one in range(number):
        kind = ChunkType.TRACKING_DELTA if one % 3 == 2 else ChunkType.USER
        records = 1 if kind is not ChunkType.USER else 10
        made.append(made_chunk(at, records, kind=kind))
        at += records
    return made


def log_of(rig: TakeoverRig, chunks: list[Chunk], *, per_segment: int, left: int) -> FakeLog:
    """Put chunks into the broker's log, and delete all but the last segments."""
    log = rig.broker.declare("s")
    for number, chunk in enumerate(chunks):
        if number and number % per_segment == 0:
            log.roll()
        log.append(chunk)
    log.retain(left)
    return log


@pytest.mark.parametrize("has_stats", [True, False], ids=["3.11", "3.10"])
@pytest.mark.parametrize("tail", [15, 16, 17, 18, 19])
@pytest.mark.parametrize(
    ("spec", "start"),
    [(FIRST, 0), (AtOffset(Offset(25)), 20), (AtTimestamp(TimestampMs(21_000)), 21), (AtOffset(Offset(120)), 120)],
    ids=["first", "offset", "timestamp", "offset at the broker"],
)
def test_each_chunk_comes_once_and_in_order_across_the_border(
    *, spec: OffsetSpec, start: int, tail: int, has_stats: bool
) -> None:
    async def scenario() -> None:
        rig = TakeoverRig(has_stats=has_stats)
        chunks = chunks_with_tracking(21)
        rig.history.put("/", "s", chunks[:tail])
        log = log_of(rig, chunks, per_segment=4, left=3)
        number = rig.subscribe(7, "s", spec)
        for _ in range(20):
            await rig.run()
            rig.credit(7, 3)
        assert rig.client.codes[number] == Code.OK
        assert rig.client.chunks[7] == user_chunks(chunks, start)
        log.append(made_chunk(log.next_offset))
        rig.broker.dispatch()
        await rig.run()
        assert rig.client.chunks[7] == user_chunks(log.history, start)
        assert rig.takeover._receivers[7].flow._is_live  # type: ignore[attr-defined]
        rig.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("spec", [LAST, NEXT], ids=str)
def test_the_end_of_a_stream_is_the_brokers_and_the_archive_is_not_asked(spec: OffsetSpec) -> None:
    async def scenario() -> None:
        rig = TakeoverRig()
        chunks = made_chunks(10)
        rig.history.put("/", "s", chunks[:8])
        log_of(rig, chunks, per_segment=2, left=2)
        rig.subscribe(1, "s", spec)
        await rig.run()
        assert rig.client.chunks[1] == (user_chunks(chunks[-1:]) if spec == LAST else [])
        assert not rig.history.asked
        rig.close()

    asyncio.run(scenario())


def test_a_stream_that_is_not_archived_is_passed_on_as_it_is() -> None:
    async def scenario() -> None:
        rig = TakeoverRig()
        log_of(rig, made_chunks(10), per_segment=2, left=2)
        rig.subscribe(1, "s", FIRST)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(made_chunks(4, first=60))
        assert [type(one) for one in rig.broker.requests] == [StreamStats, Subscribe]
        rig.close()

    asyncio.run(scenario())
