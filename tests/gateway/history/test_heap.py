"""The heap is trimmed while it is needed, and not after."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.gateway.history import heap
from coldstream.gateway.history.heap import HeapTrimmer


def test_it_is_trimmed_while_there_are_readings_and_once_after(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(heap, "_malloc_trim", lambda: trimmed.append)

    async def scenario() -> None:
        needed = [True, True, False]
        trimmer = HeapTrimmer(lambda: needed.pop(0), every_s=0)
        trimmer.start()
        trimmer.start()
        before = asyncio.all_tasks()
        await asyncio.wait(before - {asyncio.current_task()})
        assert (trimmed, needed) == ([0, 0, 0], [])
        needed.append(False)
        trimmer.start()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
        assert (trimmed, needed) == ([0, 0, 0, 0], [])

    asyncio.run(scenario())


def test_another_c_library_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_malloc_trim", lambda: None)

    async def scenario() -> None:
        HeapTrimmer(lambda: True, every_s=0).start()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())
