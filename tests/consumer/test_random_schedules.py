"""Followers under thousands of random schedules: whatever happens, they give each message once and in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from coldstream.errors import GapError, IncarnationError, StreamNotFoundError, UnavailableError
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.units import Offset, TimestampMs
from tests.support.following import Following
from tests.support.world import World, run

STEPS = 60
SEEDS = 40
BLOCKS = pytest.mark.parametrize("block", range(5))


def step(world: World, *, holes: bool = False) -> None:
    """Do something at random to the world."""
    rng = world.rng
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 6)):
            world.publish(rng.randrange(1, 5))
            if rng.random() < 0.2:
                world.track()
    match rng.randrange(6):
        case 0:
            world.retain(rng.randrange(1, 12))
        case 1 | 2:
            hole = rng.randrange(1, 4) if holes and rng.random() < 0.3 else 0
            world.archive(rng.randrange(1, 8), hole=hole, reason=rng.choice(["lost", None]))
        case 3:
            world.disconnect()
            world.epoch += rng.choice([0, 1])
        case 4:
            world.is_up = rng.random() < 0.7
            if not world.is_up:
                world.disconnect()
        case 5:
            world.answers = rng.random() < 0.7
    has_enough = len(world.log) - world.kept_from > 3
    world.lag = rng.choice([world.lag] * 9 + [rng.randrange(3)]) if has_enough else 0


async def finish(world: World) -> None:
    """Let everything come to rest: both sides answer, and everything is archived."""
    world.is_up = world.answers = True
    world.lag = 0
    world.publish(1)
    world.archive(10_000)
    for subscription in list(world.subscriptions):
        subscription.fill()
    await asyncio.sleep(0)


def scene(seed: int, *, holes: bool = False) -> World:
    """Make a stream with some history."""
    world = World(random.Random(seed))
    for _ in range(world.rng.choice([0, 5, 40])):
        step(world, holes=holes)
    return world


def run_all(block: int, follow: Callable[[int], Coroutine[None, None, None]]) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        random.seed(seed)  # for the delays between attempts
        try:
            run(follow(seed))
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise


async def happen(world: World, *, holes: bool = False) -> None:
    """Let some time pass, and something happen now and then."""
    for _ in range(world.rng.randrange(STEPS)):
        await asyncio.sleep(world.rng.choice([0, 0, 0.01, 0.3, 3]))
        step(world, holes=holes)


@BLOCKS
def test_every_message_from_the_start_on_comes_once_and_in_order(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed)
        is_archived = bool(world.archived)
        chunks = [*world.newest[:1], *world.held[:1], *world.log[-1:]]
        first = min((int(chunk.header.chunk_id) for chunk in chunks), default=0)
        wanted = world.rng.randrange(first, world.next_offset + 20)
        start = world.rng.choice([FIRST, AtOffset(Offset(wanted))]) if is_archived else FIRST
        reading = Following(world, start)
        await happen(world)
        while world.next_offset <= wanted:
            world.publish(3)
        await finish(world)
        await reading.settled(world.next_offset)
        assert await reading.stop() is None
        if start == FIRST:
            wanted = first if is_archived else reading.offsets[0]
        assert reading.offsets == [offset for offset in world.messages() if offset >= wanted]

    run_all(block, follow)


@BLOCKS
def test_from_the_end_on_nothing_is_missed_however_often_the_connection_breaks(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed)
        world.publish(2)
        world.is_up, world.lag = True, 0
        spec = world.rng.choice([LAST, NEXT])
        begin = world.log[-1].header.chunk_id if spec == LAST else world.next_offset
        reading = Following(world, spec)
        await asyncio.sleep(5)  # by then it has asked where the end is
        await happen(world)
        await finish(world)
        await reading.settled(world.next_offset)
        assert await reading.stop() is None
        assert reading.offsets == [offset for offset in world.messages() if offset >= begin]

    run_all(block, follow)


@BLOCKS
def test_a_consumer_that_comes_back_goes_on_after_the_offset_it_stored(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed)
        world.publish(3)
        world.archive(10_000)
        given: list[int] = []
        for is_last in (False, False, False, True):
            reading = Following(world, FIRST, reference="billing")
            await happen(world)
            if is_last:
                await finish(world)
                await reading.settled(world.next_offset)
            assert await reading.stop() is None
            done = len(reading.offsets) if is_last else world.rng.randrange(len(reading.offsets) + 1)
            given += reading.offsets[:done]
            if given:
                world.stored["billing"] = given[-1]
        assert given == [offset for offset in world.messages() if offset >= given[0]]

    run_all(block, follow)


@BLOCKS
def test_a_time_begins_at_its_first_chunk_wherever_that_is(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed)
        world.publish(1)
        world.archive(10_000)
        world.retain(3)
        timestamp = TimestampMs(world.rng.randrange(990, world.now + 50))
        reading = Following(world, AtTimestamp(timestamp))
        await happen(world)
        while world.now <= timestamp:
            world.publish(1)
        await finish(world)
        await reading.settled(world.next_offset)
        assert await reading.stop() is None
        late = [chunk.header.chunk_id for chunk in world.log if chunk.header.timestamp >= timestamp]
        assert reading.offsets == [offset for offset in world.messages() if offset >= late[0]]

    run_all(block, follow)


@BLOCKS
def test_whatever_does_not_come_is_reported_as_a_gap(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed, holes=True)
        world.publish(1)
        world.archive(1)
        first = world.newest[0].header.chunk_id
        reading = Following(world, AtOffset(Offset(first)), on_gap="skip")
        await happen(world, holes=True)
        await finish(world)
        await reading.settled(world.next_offset)
        assert await reading.stop() is None
        missing = {offset for gap in reading.items.gaps for offset in range(gap.first_offset, gap.next_offset)}
        archived = {int(chunk.header.chunk_id) for chunk in world.newest}
        not_archived = {
            offset
            for chunk in world.log
            if chunk.header.chunk_id not in archived
            for offset in range(chunk.header.chunk_id, chunk.header.next_offset)
        }
        assert missing <= not_archived
        assert reading.offsets == [offset for offset in world.messages() if offset >= first and offset not in missing]

    run_all(block, follow)


@BLOCKS
def test_a_gap_is_raised_after_all_that_comes_before_it(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed, holes=True)
        world.publish(1)
        world.archive(1)
        first = world.newest[0].header.chunk_id
        reading = Following(world, AtOffset(Offset(first)))
        await happen(world, holes=True)
        await finish(world)
        await reading.settled(world.next_offset)
        err = await reading.stop()
        end = world.next_offset
        if err is not None:
            assert isinstance(err, GapError)
            end = Offset(err.first_offset)
            assert all(chunk.header.chunk_id != err.first_offset for chunk in world.newest)
        assert reading.offsets == [offset for offset in world.messages() if first <= offset < end]

    run_all(block, follow)


@BLOCKS
def test_two_incarnations_of_a_stream_are_never_read_as_one(block: int) -> None:
    async def follow(seed: int) -> None:
        world = scene(seed)
        world.publish(2)
        reading = Following(world, world.rng.choice([FIRST, NEXT, AtOffset(Offset(3))]))
        await happen(world)
        world.redeclare()
        # Offsets alone may fit both incarnations by chance, so there must be something else to compare.
        world.retains = world.rng.random() < 0.5
        if world.retains:
            world.publish(1000)
        await happen(world)
        await finish(world)
        await reading.settled(world.next_offset)
        err = await reading.stop()
        assert err is None or isinstance(err, IncarnationError | UnavailableError | StreamNotFoundError)
        # A message names its incarnation, and the offset at which it was published.
        incarnations = {raw.split(b"/")[0] for _, raw in reading.given}
        assert len(incarnations) <= 1
        assert [b"%d" % offset for offset, _ in reading.given] == [raw.split(b"/")[1] for _, raw in reading.given]
        assert reading.offsets == sorted(set(reading.offsets))

    run_all(block, follow)
