"""Followers of a stream that was declared again, or that looks as if it were."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.errors import (
    IncarnationError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp
from coldstream.units import Offset, TimestampMs
from tests.support.following import Following, chunks, in_a_world
from tests.support.world import World


@in_a_world
async def test_an_older_incarnations_archive_is_not_read_if_the_broker_has_all_of_the_new_one(world: World) -> None:
    chunks(world, 10)
    world.archive(10)
    world.redeclare()
    chunks(world, 4)
    for start, first in ((FIRST, 0), (AtOffset(Offset(5)), 5), (AtTimestamp(TimestampMs(0)), 0)):
        reading = Following(world, start)
        await reading.settled(12)
        assert await reading.stop() is None
        assert reading.given[0] == (first, b"2/%d" % first)


@in_a_world
async def test_an_older_incarnations_archive_is_an_error_if_the_new_one_has_lost_its_start(world: World) -> None:
    chunks(world, 10)
    world.archive(10)
    world.redeclare()
    chunks(world, 8)
    world.retain(4)
    with pytest.raises(IncarnationError, match="only offsets from 12 on"):
        await Following(world).task


@in_a_world
async def test_an_incarnation_that_begins_while_reading_is_an_error(world: World) -> None:
    chunks(world, 10)
    world.archive(10)
    reading = Following(world)
    await reading.settled(30)
    world.redeclare()
    chunks(world, 3)
    with pytest.raises(IncarnationError):
        await reading.task
    assert reading.offsets == list(range(30))


@in_a_world
async def test_messages_that_were_erased_make_no_other_stream(world: World) -> None:
    """Neither at the broker's first chunk, nor at the border to the broker, which has their bytes still."""
    chunks(world, 10)
    world.archive(8)
    world.retain(4)
    world.erase(2, 6, 7)
    for start in (FIRST, AtOffset(Offset(20))):
        reading = Following(world, start)
        await reading.settled(30)
        assert await reading.stop() is None
        assert reading.offsets == list(range(0 if start is FIRST else 20, 30))


@in_a_world
async def test_a_reader_that_has_the_bytes_goes_on_after_they_were_erased(world: World) -> None:
    chunks(world, 10)
    reading = Following(world)
    await reading.settled(30)
    world.disconnect()
    chunks(world, 10)
    world.archive(20)
    world.erase(9)
    world.retain(4)
    await reading.settled(60)
    assert await reading.stop() is None
    assert reading.offsets == list(range(60))


@in_a_world
async def test_a_replica_that_lags_behind_is_waited_for(world: World) -> None:
    chunks(world, 10)
    reading = Following(world)
    await reading.settled(30)
    world.lag = 4
    world.disconnect()
    await asyncio.sleep(100)
    world.lag = 0
    chunks(world, 1)
    await reading.settled(33)
    assert await reading.stop() is None
    assert reading.offsets == list(range(33))


async def read_live(world: World) -> Following:
    """Read ten chunks of a stream that nobody archives."""
    chunks(world, 10)
    reading = Following(world, archive_wait_s=60.0)
    await reading.settled(30)
    return reading


@in_a_world
async def test_without_its_witness_a_log_that_continues_exactly_is_read_on(world: World) -> None:
    reading = await read_live(world)
    chunks(world, 5)
    await reading.settled(45)
    world.is_up = False
    world.disconnect()
    chunks(world, 3)
    world.retain(3)
    world.is_up = True
    await reading.settled(54)
    assert await reading.stop() is None
    assert reading.offsets == list(range(54))


@in_a_world
async def test_without_its_witness_a_log_is_refused_if_the_archive_has_a_newer_incarnation(world: World) -> None:
    chunks(world, 10)
    world.archive(10)
    reading = Following(world)
    await reading.settled(30)
    world.is_up = False
    world.redeclare()
    chunks(world, 13)
    world.archive(5)
    world.retain(3)
    world.is_up = True
    with pytest.raises(IncarnationError, match="the archive has 2"):
        await reading.task
    assert reading.offsets == list(range(30))


@in_a_world
async def test_a_consumer_waiting_at_the_end_of_an_incarnation_learns_of_the_next_one(world: World) -> None:
    """The broker has only later offsets, and the archive has begun to hold those as another incarnation."""
    chunks(world, 8)
    world.archive(4)
    world.retain(2)
    reading = Following(world)
    await asyncio.sleep(60)
    assert reading.offsets == list(range(12))
    assert not reading.task.done()
    world.archived[2] = world.log[6:]
    async with asyncio.timeout(60):
        with pytest.raises(IncarnationError, match="a newer incarnation of the stream"):
            await reading.task


@in_a_world
async def test_tracking_in_the_place_of_the_witness_is_another_incarnation(world: World) -> None:
    reading = await read_live(world)
    world.is_up = False
    world.redeclare()
    chunks(world, 9)
    for _ in range(3):
        world.track()
    chunks(world, 3)
    world.is_up = True
    with pytest.raises(IncarnationError, match="the broker has another chunk there"):
        await reading.task


@in_a_world
async def test_a_smaller_log_that_is_younger_is_another_incarnation(world: World) -> None:
    loop = asyncio.get_running_loop()
    reading = await read_live(world)
    world.now += 1000
    world.redeclare()
    chunks(world, 3)
    began = loop.time()
    with pytest.raises(IncarnationError):
        await reading.task
    assert loop.time() - began < 20


@in_a_world
async def test_a_log_that_stays_smaller_has_lost_data(world: World) -> None:
    loop = asyncio.get_running_loop()
    reading = await read_live(world)
    world.now = 0
    world.redeclare()
    chunks(world, 3)
    began = loop.time()
    with pytest.raises(IncarnationError, match="does not have all that was read, up to 30"):
        await reading.task
    assert 60 <= loop.time() - began < 90


@in_a_world
async def test_a_log_that_was_smaller_and_then_lacks_the_witness_is_compared_by_the_archive(world: World) -> None:
    reading = await read_live(world)
    world.now = 0
    world.redeclare()
    chunks(world, 3)
    await asyncio.sleep(20)
    chunks(world, 10)
    world.retain(3)
    with pytest.raises(UnavailableError, match="offset 30 and what follows"):
        await reading.task
    assert reading.offsets == list(range(30))


@in_a_world
async def test_a_stream_that_is_deleted_ends_after_what_is_archived_of_it(world: World) -> None:
    reading = await read_live(world)
    world.is_up = False
    world.disconnect()
    chunks(world, 10)
    world.archive(17)
    world.delete()
    world.is_up = True
    with pytest.raises(StreamNotFoundError):
        await reading.task
    assert reading.offsets == list(range(51))
