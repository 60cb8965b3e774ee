"""The memory budget: fair, bounded, and nobody waits for a paused reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.budget import IDLE_S, PATIENCE_S, BudgetShare, ReadingBudget
from coldstream.read.http import ClosedError


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def budget_of(total: int, clock: Callable[[], float] | None = None) -> tuple[ReadingBudget, GatewayFigures]:
    figures = GatewayFigures()
    return ReadingBudget(total, figures, clock or Clock()), figures


def stubborn(_: bool) -> None:  # noqa: FBT001  the budget's
    """Give up nothing: all of it is under way."""


def test_a_reading_alone_gets_three_quarters_ahead() -> None:
    budget, figures = budget_of(100)
    share = budget.join(stubborn)
    assert [budget.take(share, 25) for _ in range(4)] == [True, True, True, False]
    assert (figures.memory_used_bytes, figures.memory_budget_bytes) == (75, 100)
    budget.give(share, 25)
    assert budget.take(share, 25)
    budget.leave(share)
    budget.leave(share)
    assert figures.memory_used_bytes == 0
    assert not budget.take(share, 1)


def test_the_last_quarter_is_for_first_ranges() -> None:
    budget, _ = budget_of(100)
    greedy, late = budget.join(stubborn), budget.join(stubborn)
    while budget.take(greedy, 25):
        pass
    assert budget.take(late, 25)
    assert not budget.take(late, 1)


def test_who_is_over_the_fair_share_gives_up_what_it_read_ahead() -> None:
    budget, _ = budget_of(120)
    asked: list[bool] = []

    def give_up(keeps_current: bool) -> None:  # noqa: FBT001  the budget's
        asked.append(keeps_current)
        budget.give(greedy, 30)

    greedy = budget.join(give_up)
    assert all(budget.take(greedy, 30) for _ in range(3))
    others = [budget.join(stubborn) for _ in range(2)]
    assert budget.take(others[0], 30)  # the last quarter
    assert budget.take(others[1], 30)
    assert asked == [True]
    assert budget.used_bytes == 120


def test_an_idle_reading_gives_up_even_its_current_range() -> None:
    clock = Clock()
    budget, _ = budget_of(40, clock)
    asked: list[bool] = []

    def give_up(keeps_current: bool) -> None:  # noqa: FBT001  the budget's
        asked.append(keeps_current)
        if not keeps_current:
            budget.give(idle, idle.held_bytes)

    idle = budget.join(give_up)
    assert budget.take(idle, 30)
    busy = budget.join(stubborn)
    assert not budget.take(busy, 20)
    clock.at += IDLE_S + 0.1
    budget.touch(busy)
    assert budget.take(busy, 20)
    assert asked == [True, False]


def test_a_range_larger_than_the_budget_is_admitted_alone() -> None:
    budget, _ = budget_of(10)
    one, other = budget.join(stubborn), budget.join(stubborn)
    assert budget.take(one, 50)
    assert not budget.take(other, 1)
    budget.leave(one)
    assert budget.take(other, 1)


def test_those_who_wait_get_memory_in_turn() -> None:
    async def scenario() -> None:
        budget, _ = budget_of(10)
        holder = budget.join(stubborn)
        assert budget.take(holder, 10)
        order: list[int] = []

        async def wait(number: int) -> None:
            share = budget.join(stubborn)
            await budget.wait(share, 10)
            order.append(number)
            budget.leave(share)

        waits = []
        for number in range(3):
            waits.append(asyncio.ensure_future(wait(number)))
            await asyncio.sleep(0)
        assert order == []
        budget.leave(holder)
        await asyncio.gather(*waits)
        assert order == [0, 1, 2]
        assert budget.used_bytes == 0

    asyncio.run(scenario())


def test_who_leaves_or_is_cancelled_waits_no_more_and_blocks_nobody() -> None:
    async def scenario() -> None:
        budget, _ = budget_of(10)
        holder = budget.join(stubborn)
        assert budget.take(holder, 10)
        shares: list[BudgetShare] = [budget.join(stubborn) for _ in range(3)]
        waits = [asyncio.ensure_future(budget.wait(share, 10)) for share in shares]
        await asyncio.sleep(0)
        waits[0].cancel()
        budget.leave(shares[1])
        with pytest.raises(ClosedError):
            await waits[1]
        budget.leave(holder)
        await asyncio.wait_for(waits[2], 5)
        assert shares[2].held_bytes == 10

    asyncio.run(scenario())


def test_who_waits_for_a_large_range_is_not_overtaken_by_those_who_read_ahead() -> None:
    async def scenario() -> None:
        budget, _ = budget_of(100)
        holders = [budget.join(stubborn) for _ in range(2)]
        assert all(budget.take(holder, 20) for holder in holders)
        large = budget.join(stubborn)
        waiting = asyncio.ensure_future(budget.wait(large, 500))
        await asyncio.sleep(0)
        assert not budget.take(holders[0], 1)
        for holder in holders:
            budget.give(holder, 20)
        await asyncio.wait_for(waiting, 5)
        assert budget.used_bytes == 500

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [20, 500], ids=["a range", "one larger than the budget"])
def test_clients_that_take_a_chunk_now_and_then_do_not_keep_the_memory_from_others_for_ever(size: int) -> None:
    async def scenario() -> None:
        clock = Clock()
        budget, _ = budget_of(100, clock)
        gave: list[BudgetShare] = []

        def holder(bytes_held: int) -> BudgetShare:
            def give_up(keeps_current: bool) -> None:  # noqa: FBT001  the budget's
                if not keeps_current:
                    gave.append(share)
                    budget.give(share, share.held_bytes)

            share = budget.join(give_up)
            assert budget.take(share, bytes_held)
            return share

        holders = [holder(45), holder(45)]
        newcomer, next_one = budget.join(stubborn), budget.join(stubborn)
        waits = [asyncio.ensure_future(budget.wait(share, size)) for share in (newcomer, next_one)]
        for _ in range(int(2 * PATIENCE_S / IDLE_S)):
            await asyncio.sleep(0)
            assert not gave
            for share in holders:
                budget.touch(share)
            clock.at += IDLE_S / 2
            budget.give(holders[0], 0)  # wakes whoever waits
        await asyncio.wait_for(waits[0], 5)
        assert gave == (holders[:1] if size <= 100 else holders)
        assert newcomer.held_bytes == size
        assert budget.used_bytes == (45 + 2 * size if size <= 100 else size)  # the next one gets on, too
        budget.leave(newcomer)
        await asyncio.wait_for(waits[1], 5)

    asyncio.run(scenario())
