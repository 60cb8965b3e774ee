"""One play: a seed gives a world, what happens in it, and what is said of it.

    play(seed).told      what happened, a line each, the same for the same seed

Whatever is wrong raises AssertionError, at once or at the end, when everything works again and all have caught up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import AsyncMock, patch

from coldstream.agent import disk_guard
from coldstream.agent.stream_delivery import StreamDelivery
from coldstream.resolve.resolver import Resolver
from tests.explore.base import KEYS, URL_EXPIRY_S
from tests.simulation import judge
from tests.simulation.agents import SimulatedAgent
from tests.simulation.archive_source import InlinePool, SimulatedArchive
from tests.simulation.bus import EventQueue
from tests.simulation.cluster import ClusterReplica, ReplicatedStream
from tests.simulation.finale import StreamPurge, purges, read_all
from tests.simulation.gaps import AskedResolver
from tests.simulation.gateway_side import GatewaySide
from tests.simulation.happenings import Happenings, every
from tests.simulation.keepers import Keepers
from tests.simulation.others import Others
from tests.simulation.readers import SimulatedReader
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.upkeep import Upkeep
from tests.simulation.virtual import SimulationLoop, run_in_simulation
from tests.simulation.watched import SimulatedStores

HOURS = 1.0
CATCH_UP_S = 12 * 3600.0
WRITES_ON_S = 900.0
"""So long is written once everything works: what is last on a disk is proven by what follows."""
READERS = 3
BEGINNINGS_S = (0.0, 0.0, 600.0, 1200.0, 3000.0)
"""When consumers come to the stream."""
LOSING = 0.4
"""Of so many worlds something may be lost."""


@dataclass
class Played:
    """What happened in one play."""

    seed: int
    told: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        """Count what happened."""
        self.figures[what] = self.figures.get(what, 0) + number


def play(seed: int, hours: float = HOURS) -> Played:
    """Play a seed, so many hours of it. Raises AssertionError, with the seed in its notes."""
    played = Played(seed)
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        try:
            run_in_simulation(seed, _begun(Path(directory), played, hours))
        except BaseException as err:
            err.add_note(f"python -m tests.simulation {seed} --hours {hours}")
            err.add_note("\n".join(played.told[-30:]))
            raise
    return played


async def _begun(directory: Path, played: Played, hours: float) -> None:
    world = SimulatedWorld(directory, played, hours)
    with (
        patch.object(disk_guard, "_free_bytes", world.free_bytes),
        # No stream is quiet: files have the times of the machine's clock, which say nothing in virtual time.
        patch.object(StreamDelivery, "_is_quiet", AsyncMock(return_value=False)),
        world.front.listening(),
    ):
        await world.live()


class SimulatedWorld:
    """A stream on three nodes, their agents, the archive, and who reads it."""

    def __init__(self, directory: Path, played: Played, hours: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        self.loop = loop
        self.played = played
        self.hours = hours
        self.rng = rng = random.Random(played.seed)
        self.loses = rng.random() < LOSING
        """Whether retention deletes what nobody has pinned or archived, disks are small, and some are lost."""
        self.stream = ReplicatedStream(directory, rng, rng.choice([1000, 3000]))
        self.stores = SimulatedStores(loop.wall_ms, self.stream, rng.choice([500, 1500, 8000]))
        functions = Trouble(rng)
        self.troubles = [functions]
        uploader = self.stores.uploader(
            Troubled(self.stores.table, functions), Troubled(self.stores.objects, functions)
        )
        self.queue = EventQueue(rng, uploader, functions, loop.wall_ms, self.say)
        every_ms = rng.choice([None, None, 600_000])
        self.agents = [self._agent(directory, replica, every_ms) for replica in self.stream.replicas]
        resolver = Resolver(self.stores.table, self.stores.objects, URL_EXPIRY_S, clock=loop.time)
        range_bytes = rng.choice([400, 4000])
        self.readers = [self._reader(number, resolver, range_bytes) for number in range(READERS)]
        workers = Trouble(rng)
        self.troubles.append(workers)
        self.upkeep = Upkeep(rng, self.stores, workers, self.say)
        self.others = Others(played.seed, loop, self.stores, self.upkeep)
        self.front = GatewaySide(played.seed, self.stream, self.stores, may_lose=self.loses)
        self.keepers = Keepers(played.seed, self.stores, self.say)
        self.happenings = Happenings(self)

    def say(self, what: str) -> None:
        """Write down what happened."""
        self.played.told.append(f"{self.loop.time() - 1000:10.3f}  {what}")

    def free_bytes(self, directory: Path) -> int:
        """Tell how much of an agent's disk is free."""
        return next(one.free_bytes() for one in self.agents if one.state == directory)

    async def live(self) -> None:
        """Let it all happen, mend it, and judge."""
        for agent in self.agents:
            agent.start()
        self.others.start()
        self.front.begin()
        for reader in self.readers:
            self.loop.call_later(self.rng.choice(BEGINNINGS_S), reader.start)
        events = [asyncio.create_task(one) for one in self._events()]
        if self.rng.random() < 0.25:
            self.loop.create_task(self.happenings.begin_without_functions())
        try:
            await self._pass(self.hours * 3600, events)
        finally:
            for task in events:
                task.cancel()
            await asyncio.gather(*events, return_exceptions=True)
        await self._mend()
        await self._catch_up()
        for one in (*self.agents, *self.readers):
            await one.kill()
        await self.front.end()
        await self.others.judge()
        self.upkeep.compact()
        await asyncio.sleep(2 * 24 * 3600)
        self.keepers.finish()
        await self._wait_for_tombstones()
        self.upkeep.sweep()
        judge.judge(self)
        archive = self.readers[0].archive
        self.played.count("erased messages that a fresh reader was given empty", await read_all(self, archive))
        if purges(self.played.seed):
            await StreamPurge(self, archive).run()
            self.played.count("streams purged")
        self._count()

    def _agent(self, directory: Path, replica: ClusterReplica, every_ms: int | None) -> SimulatedAgent:
        trouble = Trouble(self.rng)
        self.troubles.append(trouble)
        state = directory / f"node-{replica.number}/state"
        stores = (self.stores.table, self.stores.objects, self.queue, KEYS)
        agent = SimulatedAgent(replica, state, stores, trouble, every_ms)
        agent.drift_s = self.rng.choice([0.0, 0.0, -3600.0, 1800.0])
        agent.room_bytes = self.rng.choice([None, 2000, 6000]) if self.loses else None
        return agent

    def _reader(self, number: int, resolver: Resolver, range_bytes: int) -> SimulatedReader:
        asked = AskedResolver(resolver, self.stores.table)
        archive = SimulatedArchive(asked, InlinePool(self.stores.objects), range_bytes)
        return SimulatedReader(
            f"reader {number}", self.stream, archive, self.rng, self.stores.erased, may_skip=self.loses
        )

    def _events(self) -> list[Coroutine[Any, Any, None]]:
        aside = (*self.others.plans(), *self.front.plans(), *self.keepers.plans())
        return [every(self.rng, *plan) for plan in self.happenings.plans()] + [
            every(random.Random(f"{self.played.seed} {number}"), *plan) for number, plan in enumerate(aside)
        ]

    async def _pass(self, seconds: float, events: list[asyncio.Task[None]]) -> None:
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            await asyncio.sleep(min(60.0, max(0.0, until - self.loop.time())))
            for one in (*self.agents, *self.readers):
                one.check()
            self.others.check()
            self.front.check()
            for task in events:
                if task.done():
                    task.result()

    # The end.

    async def _mend(self) -> None:
        self.say("everything works again")
        for trouble in self.troubles:
            trouble.failing = trouble.dying = 0.0
        for replica in self.stream.replicas:
            replica.is_down = replica.is_cut = False
        self.queue.is_running = True
        self.happenings.elect()
        self.others.mend()
        self.front.mend()
        self.keepers.mend()
        for _ in range(20):
            self.happenings.replicate()
        for agent in self.agents:
            agent.start()
        for reader in self.readers:
            reader.start()

    async def _catch_up(self) -> None:
        leader = self.stream.leader
        assert leader is not None
        until = self.loop.time() + CATCH_UP_S
        while not judge.is_settled(self):
            self.stream.now_ms = self.loop.wall_ms()
            if self.loop.time() < until - CATCH_UP_S + WRITES_ON_S:
                self.happenings.write()
            self.happenings.replicate()
            for agent in self.agents:
                agent.wake()
            self.queue.redrive()
            await self._pass(60, [])
            assert self.loop.time() < until, judge.unsettled(self)

    async def _wait_for_tombstones(self) -> None:
        """Wait until all that was replaced is due: what lost a race, after the longest grace."""
        due_at = max((one.due_at for one in self.stores.table.state.tombstones.values()), default=0)
        await asyncio.sleep(max(24 * 3600, due_at / 1000 - self.loop.wall_ms() / 1000 + 1))

    def _count(self) -> None:
        count = self.played.count
        count("confirmed chunks", len(self.stream.log))
        count("chunks read", sum(one.chunks for one in self.readers))
        count("consumers that began later", sum(one.began_later for one in self.readers))
        count("consumers that ended and started again", sum(one.ended for one in self.readers))
        count("gaps told", sum(len(one.skipped) for one in self.readers))
        count("epochs", self.stream.epoch)
        count("changes of the manifest", self.stores.table.changes)
        count("losses", len(self.queue.lost))
        count("worlds with losses", bool(self.queue.lost))
        count("worlds with gaps told", any(one.skipped for one in self.readers))
        for trouble in self.troubles:
            for what, number in trouble.counts.items():
                count(what, number)
        for what, number in (
            self.upkeep.done | self.others.figures() | self.front.figures() | self.keepers.figures()
        ).items():
            count(what, number)
