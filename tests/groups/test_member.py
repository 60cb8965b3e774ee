"""Members in an event loop, and their calls in threads: what they cost, and what they do without a table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coldstream.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidNameError,
    NotOwnerError,
    UnavailableError,
)
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.groups.group_items import group_names
from coldstream.groups.listing import ListedPartition, list_groups
from coldstream.groups.member import BEATS_A_LEASE, GroupMember
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset

LEASE_S = 1.5


class FailingTable(MemoryTable):
    """A table that refuses every write of a state item while it has an error to raise."""

    error: Exception | None = None

    def put_state(self, *changed: StateItem) -> None:
        if self.error is not None:
            raise self.error
        super().put_state(*changed)


class Following:
    """A program that takes part, and gives back what it is asked for."""

    def __init__(self, member: GroupMember) -> None:
        self.member = member
        self.error: Exception | None = None
        self.task = asyncio.create_task(self._follow())

    @property
    def owned(self) -> set[int]:
        return {number for number in range(5000) if self.member.owns(number)}

    async def _follow(self) -> None:
        try:
            async for assignment in self.member.assignments():
                for number in assignment.leaving:
                    self.member.done_with(number)
        except Exception as err:  # noqa: BLE001  the test looks at it
            self.error = err


def member(table: MemoryTable, numbers: range = range(4), name: str | None = None) -> GroupMember:
    return GroupMember(ConsumerGroup("billing", table, name, LEASE_S), "/", "orders", numbers)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)


async def test_a_second_member_gets_its_share_and_leaving_frees_it() -> None:
    table = MemoryTable()
    async with member(table) as a:
        first = Following(a)
        await until(lambda: first.owned == {0, 1, 2, 3})
        async with member(table) as b:
            second = Following(b)
            await until(lambda: second.owned == {2, 3} and first.owned == {0, 1})
            await b.commit(2, Offset(7))
            with pytest.raises(NotOwnerError):
                await b.commit(0, Offset(7))
        await until(lambda: first.owned == {0, 1, 2, 3})
        assert await a.committed() == {2: 7}
        assert not b.owns(2)


async def test_quiet_members_cost_two_requests_a_beat_however_many_partitions_they_have() -> None:
    table = MemoryTable()
    async with member(table, range(600)) as a, member(table, range(600)) as b:
        first, second = Following(a), Following(b)
        await until(lambda: len(first.owned) == len(second.owned) == 300)
        await (a if 0 in first.owned else b).commit(0, Offset(1))
        await asyncio.sleep(LEASE_S)
        before, begun = table.requests.total(), asyncio.get_running_loop().time()
        await asyncio.sleep(2 * LEASE_S)
        beats = (asyncio.get_running_loop().time() - begun) * BEATS_A_LEASE / LEASE_S
        # Beats come up to a tenth before they are due, and one may have begun before.
        assert table.requests.total() - before <= 2 * 2 * (beats / 0.9 + 1)


async def test_a_table_that_is_away_ends_the_lease_and_the_member_comes_back_by_itself() -> None:
    table = FailingTable()
    async with member(table) as a:
        following = Following(a)
        await until(lambda: following.owned == {0, 1, 2, 3})
        table.error = UnavailableError("no answer")
        await until(lambda: following.owned == set())
        with pytest.raises(UnavailableError):
            await a.commit(0, Offset(1))
        table.error = None
        await until(lambda: following.owned == {0, 1, 2, 3})


async def test_a_member_that_was_replaced_comes_back_and_its_old_epoch_is_refused() -> None:
    table, other_table = FailingTable(), MemoryTable()
    other_table._states = table._states
    async with member(table) as a:
        stalled = Following(a)
        await until(lambda: stalled.owned == {0, 1, 2, 3})
        await a.commit(0, Offset(5))
        table.error = UnavailableError("no answer")
        async with member(other_table) as b:
            replacing = Following(b)
            await until(lambda: replacing.owned == {0, 1, 2, 3})
            assert stalled.owned == set()
            table.error = None
            with pytest.raises(NotOwnerError):
                await a.commit(0, Offset(6))
            await until(lambda: len(stalled.owned) == len(replacing.owned) == 2)


async def test_a_denied_table_ends_the_member() -> None:
    table = FailingTable()
    table.error = AccessDeniedError("denied")
    async with member(table) as a:
        following = Following(a)
        await until(lambda: isinstance(following.error, AccessDeniedError))


async def test_a_living_member_keeps_its_name() -> None:
    table = MemoryTable()
    async with member(table, name="one") as a:
        first = Following(a)
        await until(lambda: first.owned == {0, 1, 2, 3})
        async with member(table, name="one") as b:
            second = Following(b)
            await until(lambda: isinstance(second.error, InvalidInputError))
            assert first.owned == {0, 1, 2, 3}


async def test_the_groups_of_a_stream_are_listed() -> None:
    table = MemoryTable()
    assert group_names(table, "/", "orders") == []
    async with member(table) as a:
        following = Following(a)
        await until(lambda: bool(following.owned))
        await a.commit(3, Offset(9))
        (listed,) = list_groups(table, "/", "orders")
        assert (listed.name, listed.members) == ("billing", (a.member,))
        assert listed.partitions[3] == ListedPartition(3, a.member, 1, Offset(9))
    assert [one.group for one in group_names(table, "/", "orders")] == ["billing"]
    assert group_names(table, "/", "other") == []


@pytest.mark.parametrize("name", ["", "g" * 256, "\ud800"])
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        ConsumerGroup(name, MemoryTable())
    if name:
        with pytest.raises(InvalidNameError):
            ConsumerGroup("billing", MemoryTable(), name)


@pytest.mark.parametrize("lease_s", [0, -1, 3601, float("nan")])
def test_a_lease_is_up_to_an_hour(lease_s: float) -> None:
    with pytest.raises(InvalidInputError):
        ConsumerGroup("billing", MemoryTable(), lease_s=lease_s)


def test_groups_whose_names_run_together_are_others() -> None:
    names = [("/", "a", "bc"), ("/", "ab", "c"), ("/a", "b", "c"), ("/", "abc", "#")]
    table = MemoryTable()
    partitions = {GroupMember(ConsumerGroup(g, table), v, n).name.partition for v, n, g in names}
    assert len(partitions) == 4


async def test_partitions_that_are_written_no_more_are_no_load() -> None:
    table = MemoryTable()
    async with member(table, range(8)) as a, member(table, range(8)) as b:
        first, second = Following(a), Following(b)
        for one in (a, b):
            one.use_partitions(range(8), earlier=(0, 1, 2, 3))
        await until(lambda: all(len(one.owned & {4, 5, 6, 7}) == 2 for one in (first, second)))
        await until(lambda: all(len(one.owned) == 4 for one in (first, second)))


async def test_members_that_leave_at_the_same_time_all_leave() -> None:
    table = MemoryTable()
    members = [member(table, range(20)) for _ in range(20)]
    for one in members:
        await one.__aenter__()
    await until(lambda: len(list_groups(table, "/", "orders")) == 1)
    await until(lambda: len(list_groups(table, "/", "orders")[0].members) == 20)
    await asyncio.gather(*(one.__aexit__(None, None, None) for one in members))
    assert list_groups(table, "/", "orders")[0].members == ()


@pytest.mark.parametrize("lease_s", [0.0, 0.0004, -1.0, 3601.0])
def test_a_lease_that_heartbeats_cannot_tell_is_refused(lease_s: float) -> None:
    with pytest.raises(InvalidInputError, match="lease_s"):
        ConsumerGroup("billing", MemoryTable(), lease_s=lease_s)
