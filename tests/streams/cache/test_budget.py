"""The memory budget: never exceeded, first come first served, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import random

import pytest

from coldstream.streams.cache.budget import MemoryBudget


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_waits_until_there_is_room() -> None:
    budget = MemoryBudget(100)
    await budget.reserve(70)
    waits = asyncio.create_task(budget.reserve(40))
    await settle()
    assert not waits.done()
    assert (budget.used, budget.waiting) == (70, 1)
    budget.free(10)
    await waits
    assert (budget.used, budget.waiting) == (100, 0)


async def test_a_small_request_does_not_overtake_a_large_one() -> None:
    budget = MemoryBudget(100)
    await budget.reserve(60)
    large = asyncio.create_task(budget.reserve(80))
    await settle()
    small = asyncio.create_task(budget.reserve(10))
    await settle()
    assert not small.done()
    assert not budget.try_reserve(1)
    budget.free(60)
    await asyncio.gather(large, small)
    assert budget.used == 90


async def test_a_request_larger_than_the_budget_is_let_in_alone() -> None:
    budget = MemoryBudget(100)
    await budget.reserve(1)
    huge = asyncio.create_task(budget.reserve(500))
    await settle()
    assert not huge.done()
    budget.free(1)
    await huge
    assert budget.used == 500
    following = asyncio.create_task(budget.reserve(1))
    await settle()
    assert not following.done()
    budget.free(500)
    await following


async def test_evictors_are_asked_in_order_and_only_for_what_is_needed() -> None:
    budget = MemoryBudget(100)
    asked: list[tuple[str, int]] = []

    def gives(name: str, most: int):  # type: ignore[no-untyped-def]
        def evict(size: int) -> int:
            asked.append((name, size))
            return min(most, size)

        return evict

    budget.add_evictor(gives("least", 20))
    budget.add_evictor(gives("more", 1000))
    await budget.reserve(100)
    await budget.reserve(10)
    assert asked == [("least", 10)]
    await budget.reserve(50)
    assert asked[1:] == [("least", 50), ("more", 30)]
    assert budget.used == 100


async def test_what_becomes_evictable_lets_in_whoever_waits() -> None:
    budget = MemoryBudget(100)
    evictable = 0

    def evict(size: int) -> int:
        return min(size, evictable)

    budget.add_evictor(evict)
    await budget.reserve(100)
    waits = asyncio.create_task(budget.reserve(30))
    await settle()
    assert not waits.done()
    evictable = 100
    budget.admit()
    await waits
    assert budget.used == 100


async def test_whoever_waits_presses_until_there_is_room() -> None:
    budget = MemoryBudget(100)
    pressed = 0

    def press() -> None:
        nonlocal pressed
        pressed += 1

    budget.on_pressure = press
    await budget.reserve(100)
    assert pressed == 0
    waits = asyncio.create_task(budget.reserve(30))
    await settle()
    assert pressed == 1
    budget.free(10)  # not enough: the flusher has to go on
    assert pressed == 2
    budget.free(20)
    await waits
    assert pressed == 2


@pytest.mark.parametrize("is_let_in", [False, True])
async def test_a_cancelled_request_takes_nothing(is_let_in: bool) -> None:  # noqa: FBT001
    budget = MemoryBudget(100)
    await budget.reserve(80)
    cancelled = asyncio.create_task(budget.reserve(90))
    await settle()
    following = asyncio.create_task(budget.reserve(20))
    await settle()
    if is_let_in:
        budget.free(80)  # let in, and cancelled before it runs
    cancelled.cancel()
    await settle()
    assert cancelled.cancelled()
    await following
    assert budget.used == (20 if is_let_in else 100)
    assert budget.waiting == 0


def test_more_than_is_reserved_cannot_be_given_back() -> None:
    with pytest.raises(ValueError, match="only 0 are reserved"):
        MemoryBudget(100).free(1)


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_starves_and_the_limit_holds(seed: int) -> None:
    rng = random.Random(seed)
    limit = 1000
    budget = MemoryBudget(limit)
    held: list[int] = []
    order: list[int] = []
    cached = 0

    def evict(size: int) -> int:
        nonlocal cached
        dropped = min(cached, size)
        cached -= dropped
        return dropped

    budget.add_evictor(evict)

    async def take(number: int, size: int) -> None:
        nonlocal cached
        await budget.reserve(size)
        order.append(number)
        held.append(size)
        assert budget.used <= limit or budget.used == size
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        held.remove(size)
        if rng.random() < 0.3:
            cached += size
            budget.admit()
        else:
            budget.free(size)
        assert budget.used == sum(held) + cached

    sizes = [rng.choice([1, 10, 200, 900, 1500]) for _ in range(200)]
    cancelled = set()
    tasks = []
    for number, size in enumerate(sizes):
        tasks.append(asyncio.create_task(take(number, size)))
        await asyncio.sleep(0)
        if rng.random() < 0.1:
            victim = rng.randrange(number + 1)
            if victim not in order and tasks[victim].cancel():
                cancelled.add(victim)
    await asyncio.gather(*tasks, return_exceptions=True)
    for number, task in enumerate(tasks):
        assert task.cancelled() == (number in cancelled)
    # In the order of the calls, each of them.
    assert [number for number in order if number not in cancelled] == [
        number for number in range(len(sizes)) if number not in cancelled
    ]
    assert (budget.used, budget.waiting) == (cached, 0)
