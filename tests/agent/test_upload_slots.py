"""Slots: what rolls now is never kept waiting by backfill."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from coldstream.agent.upload_slots import UploadSlots
from coldstream.units import TimestampMs


async def hold(
    slots: UploadSlots, name: str, order: list[str], done: asyncio.Event, *, backfill: bool, since: int
) -> None:
    async with slots.take(backfill=backfill, since=TimestampMs(since)):
        order.append(name)
        await done.wait()


async def test_backfill_leaves_the_last_slot_to_what_rolls_now():
    slots, order, done = UploadSlots(2), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(hold(slots, f"old {number}", order, done, backfill=True, since=number))
        await asyncio.sleep(0)
        tasks.create_task(hold(slots, "new", order, done, backfill=False, since=99))
        await asyncio.sleep(0.01)
        assert order == ["old 0", "new"]
        done.set()
    assert order == ["old 0", "new", "old 1", "old 2"]


async def test_a_single_slot_is_backfills_too():
    slots, order, done = UploadSlots(1), list[str](), asyncio.Event()
    done.set()
    await hold(slots, "old", order, done, backfill=True, since=0)
    assert order == ["old"]


async def test_the_oldest_waits_first():
    slots, order, done = UploadSlots(1), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold(slots, "first", order, done, backfill=False, since=50))
        await asyncio.sleep(0)
        for since in (30, 10, 20):
            tasks.create_task(hold(slots, str(since), order, done, backfill=False, since=since))
        await asyncio.sleep(0.01)
        done.set()
    assert order == ["first", "10", "20", "30"]


async def test_who_gives_up_waiting_takes_no_slot_along():
    slots, order, done = UploadSlots(1), list[str](), asyncio.Event()
    holder = asyncio.create_task(hold(slots, "holder", order, done, backfill=False, since=0))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(hold(slots, "waits", order, done, backfill=False, since=1)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    done.set()
    await holder
    # One is cancelled at the very moment that it is granted the slot.
    last = asyncio.create_task(hold(slots, "granted", order, asyncio.Event(), backfill=False, since=2))
    await asyncio.sleep(0)
    last.cancel()
    for task in (*waiting, last):
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.wait_for(hold(slots, "after", order, done, backfill=False, since=3), 1)
    assert order[-1] == "after"
