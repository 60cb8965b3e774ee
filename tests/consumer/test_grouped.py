"""Consumers of one group: each partition with one of them, from where the group is, and keys in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coldstream.consumer.batch import ChunkBatch
from coldstream.consumer.consumer import Consumer
from coldstream.consumer.gate import ArrivalGate
from coldstream.consumer.group_gate import GroupKeyGate
from coldstream.consumer.grouped import GroupedStream
from coldstream.consumer.items import BatchItems, MessageDelivery
from coldstream.errors import CorruptionError, InvalidInputError, NotOwnerError
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.groups.group_items import GroupName
from coldstream.groups.positions import read_positions
from coldstream.manifest.shard_changes import identified
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_starts import ShardStart
from coldstream.manifest.spec import FIRST, AtEnd
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.support.sharding import NOW, FakeMaker, Sharding

LEASE_S = 1.5


class MemberReading:
    """A consumer of the group, as the faces of `BaseConsumer` use it; it commits each message, or none."""

    def __init__(
        self,
        sharding: Sharding,
        table: MemoryTable,
        *,
        order: str = "key",
        commits: bool = True,
        start: ShardStart = FIRST,
    ) -> None:
        self.sharding = sharding
        self.table = table
        self.items = BatchItems(())
        self.queue: asyncio.Queue[object] = asyncio.Queue(maxsize=1)
        self.commits = commits
        self.bodies: list[str] = []
        self.errors: list[Exception] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.paused = asyncio.Event()
        self.paused.set()
        gate = GroupKeyGate(sharding.map, self.queue.put) if order == "key" else ArrivalGate(self.queue.put)
        self.stream = GroupedStream(
            sharding.map,
            start,
            group=ConsumerGroup("billing", table, lease_s=LEASE_S),
            gate=gate,
            maker=FakeMaker(sharding),
            items=self.items,
            maps=self,
            spawn=self._spawn,
            archive_wait_s=300.0,
        )
        self.stream.begin()
        self._spawn(self._take)

    async def ask(self) -> ShardMap | None:
        return self.sharding.map

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _take(self) -> None:
        while True:
            item = await self.queue.get()
            self.items.load(item)  # type: ignore[arg-type]
            if isinstance(item, ChunkBatch):
                for message in self.items.messages:
                    await self.paused.wait()
                    self.bodies.append(message.raw.decode())
                    if self.commits:
                        await self.stream.commit(item.partition, Offset(message.offset + 1))

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work()
            except Exception as err:  # noqa: BLE001  the test looks at it
                self.errors.append(err)

        task = asyncio.create_task(guarded())
        self.tasks.append(task)
        return task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.02)


def all_of(sharding: Sharding) -> set[str]:
    return {f"{key}/{number}" for key, count in sharding.written.items() for number in range(count)}


async def test_two_members_share_the_partitions_and_leave_them_to_the_other() -> None:
    sharding, table = Sharding(4), MemoryTable()
    sharding.route(*range(8))
    first = MemberReading(sharding, table)
    await until(lambda: len(first.bodies) == 8)
    second = MemberReading(sharding, table)
    await until(lambda: len(first.stream.assignment) == len(second.stream.assignment) == 2)
    assert not set(first.stream.assignment) & set(second.stream.assignment)
    sharding.route(*range(8))
    await until(lambda: len(first.bodies) + len(second.bodies) == 16)
    assert {*first.bodies, *second.bodies} == all_of(sharding)
    await first.stop()
    await until(lambda: len(second.stream.assignment) == 4)
    sharding.route(*range(8))
    await until(lambda: {*first.bodies, *second.bodies} == all_of(sharding))
    await second.stop()
    assert not first.errors + second.errors
    assert len(first.bodies) + len(second.bodies) == 24


async def test_what_nobody_committed_is_read_again() -> None:
    sharding, table = Sharding(2), MemoryTable()
    sharding.route(*range(4))
    first = MemberReading(sharding, table, commits=False)
    await until(lambda: len(first.bodies) == 4)
    await first.stop()
    second = MemberReading(sharding, table)
    await until(lambda: len(second.bodies) == 4)
    await second.stop()
    assert set(second.bodies) == all_of(sharding)


async def test_a_partition_is_kept_until_its_consumer_comes_for_the_next_message() -> None:
    sharding, table = Sharding(2), MemoryTable()
    first = MemberReading(sharding, table)
    await until(lambda: len(first.stream.assignment) == 2)
    first.paused.clear()
    sharding.write(1, 1, 1, 1)
    await until(lambda: first.items.busy == 1)
    second = MemberReading(sharding, table)
    await until(lambda: len(first.stream.assignment) == 1)
    await asyncio.sleep(LEASE_S)
    assert second.stream.assignment == ()
    first.paused.set()
    await until(lambda: len(second.stream.assignment) == 1)
    await until(lambda: {*first.bodies, *second.bodies} == all_of(sharding))
    # The one in hand was committed by its owner; the rest are the other's.
    assert (first.bodies, second.bodies) == (["1/0"], ["1/1", "1/2"])
    with pytest.raises(NotOwnerError):
        await first.stream.commit(1, Offset(1))
    await first.stop()
    await second.stop()


async def test_a_child_waits_until_its_parent_is_committed_by_whomever() -> None:
    sharding, table = Sharding(1), MemoryTable()
    sharding.route(0, 1)
    sharding.double()
    sharding.seal()
    sharding.route(0, 1)
    first, second = MemberReading(sharding, table, commits=False), MemberReading(sharding, table, commits=False)
    await until(lambda: len(first.stream.assignment) == len(second.stream.assignment) == 1)
    await until(lambda: {"0/0", "1/0", "0/1"} <= {*first.bodies, *second.bodies})
    await asyncio.sleep(2.5)
    assert "1/1" not in {*first.bodies, *second.bodies}
    parent = first if "orders-0" in first.stream.assignment else second
    await parent.stream.commit(0, Offset(2))
    await until(lambda: "1/1" in {*first.bodies, *second.bodies})
    await first.stop()
    await second.stop()


async def test_a_lease_that_was_over_and_is_renewed_loses_and_repeats_nothing() -> None:
    sharding, table = Sharding(1), MemoryTable()
    reading = MemberReading(sharding, table)
    await until(lambda: len(reading.stream.assignment) == 1)
    owns, lapsed = reading.stream._member.owns, True
    reading.stream._member.owns = lambda number: not lapsed and owns(number)  # type: ignore[method-assign]
    sharding.route(0, 1, 2)
    await asyncio.sleep(1)
    assert reading.bodies == []
    assert reading.stream.assignment == ()
    lapsed = False
    await until(lambda: len(reading.bodies) == 3)
    sharding.route(0)
    await until(lambda: len(reading.bodies) == 4)
    await reading.stop()
    assert sorted(reading.bodies) == sorted(all_of(sharding))
    assert not reading.errors


async def test_growth_is_shared_too() -> None:
    sharding, table = Sharding(2), MemoryTable()
    sharding.route(*range(8))
    first, second = MemberReading(sharding, table), MemberReading(sharding, table)
    await until(lambda: {*first.bodies, *second.bodies} == all_of(sharding))
    sharding.double()
    sharding.seal()
    sharding.route(*range(8))
    await until(lambda: {*first.bodies, *second.bodies} == all_of(sharding))
    await until(lambda: len(first.stream.assignment) == len(second.stream.assignment) == 2)
    await first.stop()
    await second.stop()
    assert not first.errors + second.errors


async def test_a_group_goes_on_where_it_began_with_what_it_has_no_messages_of_yet() -> None:
    sharding, table = Sharding(2), MemoryTable()
    sharding.route(0, 1)
    first = MemberReading(sharding, table, start=AtEnd("next"))
    await until(lambda: len(committed(first)) == 2)
    await first.stop()
    sharding.route(0, 1)
    sharding.double()
    sharding.seal()
    sharding.route(*range(4))
    second = MemberReading(sharding, table, start=AtEnd("next"))
    await until(lambda: len(second.bodies) == 6)
    await second.stop()
    assert set(second.bodies) == all_of(sharding) - {"0/0", "1/0"}
    assert not first.errors + second.errors


async def test_what_a_group_left_out_at_its_beginning_stays_so() -> None:
    sharding, table = Sharding(2), MemoryTable()
    sharding.route(0, 1)
    sharding.halve()
    sharding.seal()
    first = MemberReading(sharding, table, start=AtEnd("next"))
    await until(lambda: len(committed(first)) == 1)
    await first.stop()
    sharding.route(1)
    second = MemberReading(sharding, table)
    await until(lambda: second.bodies == ["1/1"])
    await asyncio.sleep(0.5)
    await second.stop()
    assert second.bodies == ["1/1"]


async def test_a_parent_that_is_gone_and_was_never_archived_holds_nobody_up() -> None:
    sharding, table = Sharding(2), MemoryTable()
    sharding.route(0, 1)
    sharding.halve()
    sharding.seal()
    sharding.map = identified(sharding.map, {}, deleted={1: NOW})
    sharding.world(1).log.clear()
    sharding.route(1)
    reading = MemberReading(sharding, table)
    await until(lambda: set(reading.bodies) == {"0/0", "1/1"})
    await reading.stop()
    assert not reading.errors


async def test_a_message_is_committed_to_its_own_partition_whatever_that_is_called_now() -> None:
    # Partition 1 was dropped, and its name went to partition 2: the offsets of one would skip messages of the other.
    commits: list[tuple[int, Offset]] = []

    class Grouped:
        def number_of(self, stream: str) -> int | None:
            return 2 if stream == "orders-1" else None

        async def commit(self, number: int, offset: Offset) -> None:
            commits.append((number, offset))

    group = ConsumerGroup("billing", MemoryTable())
    consumer = Consumer("orders", resolver="http://127.0.0.1:1", broker="rabbitmq-stream://127.0.0.1:1", group=group)
    sharding = Sharding(2)
    sharding.write(1, 1)
    chunk = sharding.world(1).log[0]
    items = BatchItems(())
    items.expect_partition(1, "orders-1", Offset(0))
    items.expect_partition(2, "orders-1", Offset(0))
    items.load(ChunkBatch("orders-1", (chunk,), "memory", Offset(0), partition=1))
    message = next(items.messages)
    grouped: Any = Grouped()
    await consumer._commit(grouped, MessageDelivery("orders-1", message, items.partition), None)
    await consumer._commit(grouped, 3, "orders-1")
    assert commits == [(1, Offset(1)), (2, Offset(4))]
    with pytest.raises(InvalidInputError):
        await consumer._commit(grouped, 3, None)


def committed(reading: MemberReading) -> dict[int, Offset]:
    table = reading.table
    positions = read_positions(table, GroupName("/", "orders", "billing").partition)
    return {number: one.offset for number, one in positions.items() if one.offset is not None}


async def test_an_error_beside_the_reading_is_told() -> None:
    # Untold, what is to be given back would stay here for ever.
    reading = MemberReading(Sharding(1), MemoryTable())
    failing = CorruptionError("state item", 0, "no position of a group")

    async def fail() -> None:
        raise failing

    reading.stream._exchange = fail  # type: ignore[method-assign]
    await until(lambda: reading.errors == [failing])
    await reading.stop()
