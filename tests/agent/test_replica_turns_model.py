"""Random histories of three agents beside three replicas of a stream; in the end the archive is the committed log.

Retention deletes at the broker whatever one of the agents has pinned, so nothing may be lost while any of them lives.
More of them: COLDSTREAM_SEEDS=500 pytest tests/agent/test_replica_turns_model.py
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from coldstream.agent import replica_turns
from coldstream.errors import UnavailableError
from tests.support.replica import Replica
from tests.support.replicas import replica_rigs
from tests.support.rig import Rig, chunks_archived, committed

pytestmark = pytest.mark.usefixtures("quick")

SEEDS = int(os.environ.get("COLDSTREAM_SEEDS", "6"))
STEPS = 30
NODES = 3


class Histories:
    """A stream, its nodes and their agents."""

    def __init__(self, tmp_path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stream = Replica(tmp_path / "data", max_segment_bytes=700, seed=seed)
        self.rigs = list(replica_rigs(tmp_path, self.stream, NODES))
        self.running: dict[int, AsyncExitStack] = {}
        bus = self.rigs[0].bus
        self.failing = 0.0
        put = bus.put

        def flaky(**event: str) -> None:
            put(**event)
            if self.rng.random() < self.failing:
                raise UnavailableError("the answer was lost")

        bus.put = flaky  # type: ignore[method-assign]

    async def run(self) -> None:
        steps: list[Callable[[], object]] = [
            self._publish, self._publish, self._publish, self._start, self._start, self._kill, self._lead,
            self._functions, self._lose_events, self._bus, self._retain, self._retain,
        ]  # fmt: skip
        self._publish()
        for _ in range(STEPS):
            done = self.rng.choice(steps)()
            if done is not None:
                await done  # type: ignore[misc]
            if self.rng.random() < 0.7:
                await asyncio.sleep(self.rng.random() * 0.03)
        await self._settle()

    def _publish(self) -> None:
        self.stream.publish(self.rng.randrange(1, 12), size=60)

    async def _start(self, number: int | None = None) -> None:
        number = self.rng.randrange(NODES) if number is None else number
        if number not in self.running:
            self.running[number] = AsyncExitStack()
            await self.running[number].enter_async_context(self.rigs[number].running())

    async def _kill(self) -> None:
        if self.running:
            await self.running.pop(self.rng.choice(list(self.running))).aclose()

    def _lead(self) -> None:
        """Have another node lead, or have none say so, or two."""
        places = self.rng.choice([[0, 1, 2], [2, 0, 1], [1, 2, 0], [1, 1, 2], [0, 0, 1]])
        for rig, place in zip(self.rigs, places, strict=True):
            rig.node.at = place  # type: ignore[union-attr]

    def _functions(self) -> None:
        run = self.rng.random() < 0.7
        for rig in self.rigs:
            rig.functions_run = run

    def _lose_events(self) -> None:
        """Lose what is on the bus, as in a dead-letter queue: the staged copies stay."""
        self.rigs[0].bus.waiting.clear()

    def _bus(self) -> None:
        self.failing = self.rng.choice([0.0, 0.3])

    def _retain(self) -> None:
        for path in self.stream.segments[:-1][: self.rng.randrange(1, 4)]:
            if not any(self._is_pinned(rig, path) for rig in self.rigs):
                return
            self.stream.delete_file(path)

    def _is_pinned(self, rig: Rig, path: Path) -> bool:
        pin = rig.tmp_path / "state/pins" / self.stream.incarnation / path.name
        return pin.exists() and pin.samefile(path)

    async def _settle(self) -> None:
        self.failing = 0.0
        for number, rig in enumerate(self.rigs):
            rig.functions_run = True
            await self._start(number)
        self.stream.publish(30, size=60)
        last = int(self.stream.segments[-1].stem)
        for rig in self.rigs:
            await rig.until(lambda rig=rig: rig.archived and rig.archived[-1][1] >= last)  # type: ignore[misc]
            await rig.until(lambda rig=rig: rig.pins == [last])  # type: ignore[misc]
        for stack in self.running.values():
            await stack.aclose()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_archive_is_the_committed_log_whichever_agent_stages(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_turns, "TURN_S", 0.05)
    monkeypatch.setattr(replica_turns, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(replica_turns, "PLACE_S", 0.02)
    monkeypatch.setattr(replica_turns, "ALONE_S", 0.1)
    monkeypatch.setattr("coldstream.agent.slice_delivery.ANNOUNCE_AGAIN_S", 0.2)
    history = Histories(tmp_path, seed)
    await history.run()
    rig = history.rigs[0]
    assert chunks_archived(rig) == committed(history.stream, rig.archived_to)
    assert rig.archived_to == int(history.stream.segments[-1].stem)
    assert rig.bus.lost == []
    assert rig.bus.quarantined == []
