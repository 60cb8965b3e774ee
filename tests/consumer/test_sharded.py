"""Sharded streams in memory: the order of keys over growth, and where reading begins and goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from coldstream.errors import GapError, IncarnationError, InvalidInputError, StreamNotFoundError
from coldstream.manifest.shard_changes import bound, doubled, identified, replaced, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import ShardStart
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtTimestamp
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs
from tests.support.sharding import NOW, Reading, Sharding
from tests.support.world import run

KEYS = range(8)


def in_virtual_time(work: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Make a test of a coroutine."""

    def test() -> None:
        random.seed(1)
        run(work())

    test.__name__ = work.__name__
    return test


def check_complete(reading: Reading) -> None:
    """Every message once, and each key in its order."""
    assert reading.error is None
    assert reading.keys == {str(key): list(range(count)) for key, count in reading.sharding.written.items()}


@in_virtual_time
async def test_growth_while_reading_keeps_each_key_in_order() -> None:
    sharding = Sharding(2)
    sharding.route(*KEYS, *KEYS)
    reading = Reading(sharding)
    await reading.given(16)
    sharding.double()
    sharding.route(*KEYS)  # new producers, while old ones go on below
    sharding.route(0, 1, count=2)
    await asyncio.sleep(60)
    children = {"orders-2", "orders-3"}
    assert not children & set(reading.streams)
    sharding.seal()
    sharding.route(*KEYS)
    await reading.given(16 + 8 + 2 + 8)
    assert len(reading.bodies) == 34
    assert children <= set(reading.streams)
    await reading.stop()


@in_virtual_time
async def test_children_wait_until_their_parent_is_given_out_up_to_the_seal() -> None:
    sharding = Sharding(1)
    for _ in range(20):
        sharding.route(0, 1)
    sharding.double()
    sharding.seal()
    for _ in range(5):
        sharding.route(0, 1)
    reading = Reading(sharding)
    await reading.given(50)
    check_complete(reading)
    await reading.stop()


@in_virtual_time
async def test_a_child_that_waits_fetches_nothing() -> None:
    sharding = Sharding(1)
    sharding.route(0, 1)
    sharding.double()
    sharding.route(1)
    reading = Reading(sharding)
    await asyncio.sleep(60)
    assert reading.maker.begun == ["orders-0"]
    sharding.seal()
    await reading.given(3)
    check_complete(reading)
    await reading.stop()


@in_virtual_time
async def test_an_empty_parent_sealed_at_its_beginning_holds_nobody_back() -> None:
    sharding = Sharding(1)
    sharding.double()
    sharding.seal()
    sharding.route(1, 1)
    reading = Reading(sharding)
    await reading.given(2)
    check_complete(reading)
    await reading.stop()


@in_virtual_time
async def test_doubling_twice_and_halving_twice_keep_each_key_in_order() -> None:
    sharding = Sharding(1)
    for change in (sharding.double, sharding.double, sharding.halve, sharding.halve):
        sharding.route(*KEYS, *KEYS)
        change()
        sharding.seal()
    sharding.route(*KEYS)
    for order in ("key", "arrival", "time"):
        reading = Reading(sharding, order=order)
        await reading.given(sum(sharding.written.values()))
        if order == "key":
            check_complete(reading)
        else:
            assert {key: sorted(numbers) for key, numbers in reading.keys.items()} == {
                str(key): list(range(count)) for key, count in sharding.written.items()
            }
        await reading.stop()


@in_virtual_time
async def test_a_batch_that_crosses_the_beginning_of_a_child_is_given_in_two_parts() -> None:
    sharding = Sharding(2)
    for _ in range(4):
        sharding.route(0, 1)
    sharding.halve()
    for _ in range(4):
        sharding.route(0, 1)  # both go to partition 0 now
    sharding.world(0).archive(100)
    reading = Reading(sharding)
    await reading.given(12)
    await asyncio.sleep(30)
    assert reading.keys == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}  # not sealed yet
    sharding.seal()
    await reading.given(16)
    check_complete(reading)
    await reading.stop()


@in_virtual_time
async def test_a_parent_deleted_at_the_broker_is_read_from_the_archive_to_its_seal() -> None:
    sharding = Sharding(2)
    for _ in range(5):
        sharding.route(0, 1)
    sharding.halve()
    sharding.route(0, 1)
    sharding.seal()
    sharding.world(1).archive(100)
    sharding.world(1).exists = False
    for deleted in (None, NOW):
        if deleted is not None:
            sharding.map = identified(sharding.map, {1: Incarnation("1")}, deleted={1: deleted})
        reading = Reading(sharding)
        await reading.given(12)
        check_complete(reading)
        await asyncio.sleep(30)
        assert "archived orders-1" in reading.maker.begun
        assert ("orders-1" in reading.maker.begun) == (deleted is None)
        await reading.stop()


@in_virtual_time
async def test_a_partition_of_the_newest_version_that_is_nowhere_is_not_found() -> None:
    sharding = Sharding(2)
    sharding.route(0, 1)
    sharding.world(1).exists = False
    reading = Reading(sharding)
    await asyncio.sleep(60)
    assert isinstance(reading.error, StreamNotFoundError)
    await reading.stop()


@in_virtual_time
async def test_a_parent_archived_less_far_than_its_seal_is_read_on_at_the_broker() -> None:
    sharding = Sharding(1)
    for _ in range(9):
        sharding.route(0, 1)
    sharding.world(0).archive(5)
    sharding.world(0).retain(14)
    sharding.double()
    sharding.seal()
    sharding.route(0, 1)
    reading = Reading(sharding)
    await reading.given(20)
    check_complete(reading)
    await reading.stop()


@pytest.mark.parametrize("on_gap", ["skip", "raise"])
def test_a_gap_in_a_parent_is_skipped_or_ends_the_reading(on_gap: str) -> None:
    async def read() -> None:
        sharding = Sharding(1)
        for _ in range(6):
            sharding.route(0, 1)
        world = sharding.world(0)
        world.archive(4)
        world.archive(2, hole=4, reason="lost")
        world.archive(100)
        world.retain(2)
        sharding.double()
        sharding.seal()
        sharding.route(1)
        reading = Reading(sharding, on_gap=on_gap)
        await reading.given(9)
        if on_gap == "raise":
            assert isinstance(reading.error, GapError)
            assert "orders-1" not in reading.streams
        else:
            assert len(reading.bodies) == 9
            assert len(reading.items.gaps) == 1
        await reading.stop()

    random.seed(1)
    run(read())


@in_virtual_time
async def test_reading_from_the_end_goes_past_the_seals_of_parents() -> None:
    sharding = Sharding(1)
    for _ in range(3):
        sharding.route(0, 1)
    sharding.double()
    sharding.seal()
    sharding.route(0, 1)
    for start in (NEXT, LAST, AtTimestamp(TimestampMs(7_000))):
        reading = Reading(sharding, start)
        await asyncio.sleep(30)
        before = len(reading.bodies)
        assert before == (2 if start == LAST else 0)
        assert reading.sharded.position is not None
        for number in (0, 1):
            sharding.world(number).now = 8_000 if isinstance(start, AtTimestamp) else 6_000
        sharding.write(1, 1)
        await reading.given(before + 1)
        assert reading.streams[-1] == "orders-1"
        await reading.stop()
        for number in (0, 1):
            sharding.world(number).now = 1_000


@in_virtual_time
async def test_a_reader_from_the_end_reads_what_it_grows_by_from_its_beginning() -> None:
    sharding = Sharding(1)
    sharding.route(0, 1)
    reading = Reading(sharding, NEXT)
    await asyncio.sleep(5)
    sharding.double()
    sharding.seal()
    sharding.route(1, 1)
    await reading.given(2)
    assert reading.bodies == ["1/1", "1/2"]
    await reading.stop()


@in_virtual_time
async def test_reading_goes_on_from_a_position_of_an_older_version() -> None:
    sharding = Sharding(2)
    for _ in range(5):
        sharding.route(*KEYS)
    first = Reading(sharding)
    await first.given(17)
    position = first.sharded.position
    assert position is not None
    assert set(position.offsets) == {0, 1}
    already = sum(position.offsets.values())
    await first.stop()
    sharding.double()
    sharding.route(*KEYS)
    sharding.seal()
    sharding.route(*KEYS)
    reading = Reading(sharding, ShardPosition.from_text(str(position)))
    await reading.given(56 - already)
    assert reading.error is None
    assert len(reading.bodies) == 56 - already
    assert all(numbers == sorted(numbers) for numbers in reading.keys.values())
    end = reading.sharded.position
    assert end is not None
    assert end.version == 2
    assert sum(end.offsets.values()) == 56
    await reading.stop()


@in_virtual_time
async def test_a_position_of_another_map_is_refused() -> None:
    for text in ("v1,7:3", "v3"):
        with pytest.raises(InvalidInputError, match="position"):
            Reading(Sharding(2), ShardPosition.from_text(text))


@in_virtual_time
async def test_a_name_that_is_declared_again_while_reading_is_another_partition() -> None:
    sharding = Sharding(2)
    sharding.route(0, 1)
    reading = Reading(sharding)
    await reading.given(2)
    sharding.halve()
    await asyncio.sleep(13)
    sharding.seal()
    sharding.route(0, 1)
    world = sharding.world(1)
    world.archive(10)
    sharding.map = identified(sharding.map, {1: Incarnation("1")}, deleted={1: NOW})
    again = [Partition(0, "orders-1")]
    sharding.map = bound(doubled(sharding.map, again, "", NOW), NOW)
    sharding.seal()
    world.redeclare()
    sharding.write(2, 1)
    await reading.given(5)
    check_complete(reading)
    assert reading.items.streams.keys() == {"orders-0", "orders-1#1", "orders-1"}
    await reading.stop()


def replaced_sharding() -> Sharding:
    """Return two partitions with 4 messages each, replaced by three that hold a replay of those and one more each."""
    sharding = Sharding(2)
    for _ in range(4):
        sharding.route(0, 1)
    names = [Partition(0, f"new-{at}") for at in range(3)]
    sharding.map = replaced(sharding.map, names, ShardHash.MURMUR3, "", NOW)
    sharding._declare()
    sharding.written.clear()
    for _ in range(4):
        sharding.route(0, 1)
    ends = {number: sharding.world(number).next_offset for number in (2, 3, 4)}
    ends[4] = Offset(0)
    sharding.map = bound(identified(sharding.map, {}, starts=ends), TimestampMs(2_000))
    sharding.map = sealed(sharding.map, {0: Offset(4), 1: Offset(4)})
    sharding.route(0, 1, 2)
    return sharding


@in_virtual_time
async def test_a_replaced_version_is_read_from_its_replay_on() -> None:
    sharding = replaced_sharding()
    reading = Reading(sharding)
    await reading.given(11)
    check_complete(reading)
    assert not any(name.startswith("orders") for name in reading.maker.begun)
    position = reading.sharded.position
    assert position is not None
    assert set(position.offsets) == {2, 3, 4}
    await reading.stop()
    again = Reading(sharding, position)
    await asyncio.sleep(30)
    assert again.bodies == []
    await again.stop()


@in_virtual_time
async def test_a_position_before_a_replacement_goes_through_the_old_partitions_first() -> None:
    sharding = replaced_sharding()
    reading = Reading(sharding, ShardPosition(1, {0: Offset(1), 1: Offset(0)}))
    await reading.given(10)
    assert reading.keys == {"0": [1, 2, 3, 4], "1": [0, 1, 2, 3, 4], "2": [0]}
    assert reading.streams.index("new-0") >= 7
    await reading.stop()


@in_virtual_time
async def test_queues_are_followed_in_the_archive_alone() -> None:
    sharding = Sharding(2, ShardKind.QUEUES)
    reading = Reading(sharding)
    await asyncio.sleep(20)  # nothing is archived yet
    for _ in range(3):
        sharding.route(0, 1)
    for number in (0, 1):
        sharding.world(number).exists = False
        sharding.world(number).archive(2)
    await reading.given(4)
    for number in (0, 1):
        sharding.world(number).archive(2)
    await reading.given(6)
    check_complete(reading)
    await reading.stop()


@in_virtual_time
async def test_in_the_order_of_time_the_archives_are_merged_and_the_idle_are_waited_for_a_moment() -> None:
    sharding = Sharding(3)
    for at in range(30):
        sharding.world(at % 2).now = 1_000 + 10 * at
        sharding.route(at % 2)
    for number in (0, 1):
        sharding.world(number).archive(10)
    reading = Reading(sharding, order="time")
    await reading.given(30)
    assert reading.error is None
    assert reading.streams == ["orders-0", "orders-1"] * 15
    sharding.route(2)
    await reading.given(31)
    assert reading.streams[-1] == "orders-2"
    await reading.stop()


@pytest.mark.parametrize("start", [LAST, NEXT, AtTimestamp(TimestampMs(2_000))], ids=str)
def test_in_the_order_of_time_a_partition_whose_broker_is_away_holds_nobody_up(start: ShardStart) -> None:
    async def read() -> None:
        sharding = Sharding(2)
        for number in (0, 1):
            sharding.world(number).now = TimestampMs(3_000)
        sharding.world(1).is_up = False
        reading = Reading(sharding, start, order="time")
        await asyncio.sleep(30)
        sharding.route(0)
        await reading.given(1)
        assert (reading.error, reading.streams) == (None, ["orders-0"])
        sharding.world(1).is_up = True
        await asyncio.sleep(30)
        sharding.route(1)
        await reading.given(2)
        assert (reading.error, reading.streams) == (None, ["orders-0", "orders-1"])
        await reading.stop()

    random.seed(1)
    run(read())


@in_virtual_time
async def test_an_earlier_partition_of_the_same_name_is_read_by_its_incarnation() -> None:
    sharding = Sharding(1)
    world = sharding.world(0)
    sharding.write(0, 0, 0)
    world.archive(10)
    sharding.map = identified(sharding.map, {0: Incarnation("1")}, deleted={0: NOW})
    again = replace(sharding.map.partitions[0], number=1, incarnation=None, deleted_at=None)
    sharding.map = sealed(bound(replaced(sharding.map, [again], ShardHash.MURMUR3, "", NOW), NOW), {0: Offset(2)})
    world.redeclare()
    sharding.write(1, 0)
    reading = Reading(sharding)
    await reading.given(3)
    check_complete(reading)
    assert reading.items.streams.keys() == {"orders-0#0", "orders-0"}
    await reading.stop()


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_key_comes_in_order_and_once(seed: int) -> None:
    """Producers switch one by one, retention and the archive move, and the reader goes on from a position at times."""
    random.seed(seed)
    run(_play(random.Random(seed)))


async def _play(rng: random.Random) -> None:
    sharding = Sharding(rng.choice([1, 2, 4]))
    switched = set(KEYS)
    reading = Reading(sharding)
    bodies: list[str] = []
    for _ in range(60):
        current = len(sharding.map.newest.partitions)
        match rng.choice(["write", "write", "write", "switch", "change", "archive", "again", "pause"]):
            case "write":
                for key in rng.choices(KEYS, k=5):
                    layout = sharding.map.newest.partitions if key in switched else sharding.map.versions[-2].partitions
                    sharding.write(layout[key % len(layout)], key)
            case "switch":
                switched |= set(rng.choices(KEYS, k=4))
            case "change" if switched >= set(KEYS) and not sharding.map.unsealed and current in (1, 2, 4):
                if current == 1 or (current == 2 and len(sharding.map.partitions) < 16):
                    sharding.double()
                else:
                    sharding.halve()
                    await asyncio.sleep(13)  # producers get to know it after the readers
                switched = set()
            case "archive":
                sharding.archive(rng)
            case "again":
                bodies += reading.bodies
                position = reading.sharded.position
                await reading.stop()
                assert reading.error is None
                reading = Reading(sharding, FIRST if position is None else position)
                bodies = bodies if position is not None else []
            case _:
                await asyncio.sleep(rng.choice([0, 0.1, 5, 30]))
        if switched >= set(KEYS) and sharding.map.unsealed:
            sharding.seal()
    switched = set(KEYS)
    sharding.seal()
    await reading.given(sum(sharding.written.values()) - len(bodies))
    reading.bodies = bodies + reading.bodies
    check_complete(reading)
    await reading.stop()


@in_virtual_time
async def test_a_map_of_other_partitions_ends_the_reading() -> None:
    sharding = Sharding(2)
    sharding.route(*KEYS)
    reading = Reading(sharding)
    await reading.given(8)
    other = Sharding(1)
    sharding.map = replace(other.map, revision=sharding.map.revision + 1)
    await asyncio.sleep(30)
    assert isinstance(reading.error, IncarnationError)
    await reading.stop()


def test_a_change_that_is_known_too_late_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def read(seconds: float) -> None:
        caplog.clear()
        sharding = Sharding(2)
        reading = Reading(sharding)
        sharding.route(0, 1)
        await reading.given(2)
        sharding.halve()
        await asyncio.sleep(seconds)
        sharding.route(0, 1)
        await asyncio.sleep(60)
        assert reading.error is None
        assert len(reading.bodies) == (4 if seconds == 0 else 2)
        await reading.stop()

    random.seed(1)
    run(read(0))
    (told,) = caplog.messages
    assert "partition 0, 'orders-0', was read up to offset 3" in told
    assert "after partition 1, 'orders-1', from offset 1 on" in told
    run(read(13))
    assert caplog.messages == []


def test_a_resolver_that_is_away_is_told_once_and_reading_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def read() -> None:
        sharding = Sharding(2)
        reading = Reading(sharding)
        sharding.answers = False
        await asyncio.sleep(100)
        sharding.route(*KEYS)
        await reading.given(8)
        check_complete(reading)
        assert sum("no change of it is seen" in message for message in caplog.messages) == 1
        sharding.answers = True
        await asyncio.sleep(20)
        assert caplog.messages[-1].endswith("the map can be asked for again")
        await reading.stop()

    random.seed(1)
    run(read())
