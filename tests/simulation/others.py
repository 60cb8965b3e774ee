"""Who else works on the archive: appenders of a direct stream, workers with their jobs, operators; and what kills them.

They draw from a generator of their own, so that what is done to the replicated stream hardly depends on them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.simulation.appenders import AppendLedger, SimulatedAppender
from tests.simulation.jobs import JobLedger, Operators, SimulatedWorker
from tests.simulation.stores import Trouble
from tests.simulation.upkeep import Upkeep
from tests.simulation.virtual import SimulationLoop
from tests.simulation.watched import SimulatedStores

HOUR_S = 3600.0


class Others:
    """All of them."""

    def __init__(self, seed: int, loop: SimulationLoop, stores: SimulatedStores, upkeep: Upkeep) -> None:
        self._rng = rng = random.Random(f"others {seed}")
        self._loop = loop
        self._upkeep = upkeep
        self.appended = AppendLedger()
        self.jobs = JobLedger(stores)
        self.appenders = [SimulatedAppender(f"appender-{at}", loop, rng, stores, self.appended) for at in range(2)]
        self.workers = [SimulatedWorker(f"worker-{at}", loop, rng, stores, self.jobs) for at in range(2)]
        for worker in self.workers:
            worker.maintain = self._maintain
        self.operators = Operators(rng, stores, self.jobs)

    @property
    def processes(self) -> list[SimulatedAppender | SimulatedWorker]:
        """Who can be killed."""
        return [*self.appenders, *self.workers]

    @property
    def troubles(self) -> list[Trouble]:
        """What happens to their requests."""
        return [*(one.trouble for one in self.processes), self.operators.trouble]

    def plans(self) -> list[tuple[float, Callable[[], object]]]:
        """Return what happens how often, in seconds."""
        return [
            (0.15 * HOUR_S, self._kill),
            (0.1 * HOUR_S, self._stall),
            (0.3 * HOUR_S, self._have_trouble),
            (0.5 * HOUR_S, self.operators.create),
            (0.3 * HOUR_S, self.operators.steer),
        ]

    def check(self) -> None:
        """Raise what ended any."""
        for one in self.processes:
            one.check()

    def start(self) -> None:
        """Start all that are not there."""
        for one in self.processes:
            one.start()

    def mend(self) -> None:
        """Have everything work."""
        for trouble in self.troubles:
            trouble.failing = 0.0
        self.start()

    def unsettled(self) -> str:
        """Let go on what is paused by now, and say what is left to do."""
        self.operators.settle()
        return "" if self.operators.are_done else "jobs are left"

    async def judge(self) -> None:
        """Kill all, and hold the direct stream and the jobs against what was said of them."""
        self.operators.settle()
        for one in self.processes:
            await one.kill()
        self.jobs.judge()
        self.appended.judge(await self.appenders[0].read_all())

    def figures(self) -> dict[str, int]:
        """Return what was done."""
        return {
            "batches acknowledged to appenders": len(self.appended.acknowledged),
            "batches refused": len(self.appended.refused),
            "jobs": len(self.jobs.ids),
            "jobs deleted": len(self.jobs.deleted),
            "steps of jobs": self.jobs.steps,
            "steps done again": self.jobs.again,
        }

    async def _kill(self) -> None:
        busy = [one for one in self.workers if one.is_busy]
        one = self._rng.choice(busy or self.processes)
        await one.kill()
        await asyncio.sleep(self._rng.choice([1, 60, 600]))
        one.start()

    def _stall(self) -> None:
        busy = [one for one in self.workers if one.is_busy]
        self._rng.choice(busy or self.workers).stall(self._rng.choice([3, 12, 16, 20, 40]))

    async def _have_trouble(self) -> None:
        trouble = self._rng.choice(self.troubles)
        trouble.failing = self._rng.choice([0.1, 0.5, 1.0])
        await asyncio.sleep(self._rng.choice([10, 60, 300]))
        trouble.failing = 0.0

    def _maintain(self) -> None:
        self._rng.choice([self._upkeep.compact, self._upkeep.sweep])()
