"""One play: a seed gives a world, what happens in it, and what is said of it.

    play(seed).told      what happened, a line each, the same for the same seed

Whatever is wrong raises AssertionError, at once or at the end, when everything works again and all have caught up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import AsyncMock, patch

from coldstream.agent import disk_guard
from coldstream.agent.stream_delivery import StreamDelivery
from coldstream.resolve.resolver import Resolver
from coldstream.units import Offset
from tests.explore.base import KEYS, URL_EXPIRY_S
from tests.simulation import judge
from tests.simulation.agents import SimulatedAgent
from tests.simulation.bus import EventQueue
from tests.simulation.cluster import ClusterReplica, ReplicatedStream
from tests.simulation.gaps import AskedResolver
from tests.simulation.others import Others
from tests.simulation.readers import InlinePool, SimulatedArchive, SimulatedReader
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
        self.removes = rng.random() < 0.5
        self.pace_s = rng.choice([60.0, 120.0])
        self.stream = ReplicatedStream(directory, rng, rng.choice([1000, 3000]))
        self.stores = SimulatedStores(loop.wall_ms, rng.choice([500, 1500, 8000]))
        functions = Trouble(rng)
        self.troubles = [functions]
        uploader = self.stores.uploader(
            Troubled(self.stores.table, functions), Troubled(self.stores.objects, functions)
        )
        self.queue = EventQueue(rng, uploader, functions, loop.wall_ms, self.say)
        every_ms = rng.choice([None, None, 600_000])
        self.agents = [self._agent(directory, replica, every_ms) for replica in self.stream.replicas]
        resolver = Resolver(self.stores.table, self.stores.objects, URL_EXPIRY_S)
        range_bytes = rng.choice([400, 4000])
        self.readers = [self._reader(number, resolver, range_bytes) for number in range(READERS)]
        workers = Trouble(rng)
        self.troubles.append(workers)
        self.upkeep = Upkeep(rng, self.stores, workers, self.say)
        self.others = Others(played.seed, loop, self.stores, self.upkeep)

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
        for reader in self.readers:
            self.loop.call_later(self.rng.choice(BEGINNINGS_S), reader.start)
        events = [asyncio.create_task(one) for one in self._events()]
        if self.rng.random() < 0.25:
            self.loop.create_task(self._begin_without_functions())
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
        await self.others.judge()
        self.upkeep.compact()
        await asyncio.sleep(2 * 24 * 3600)
        self.upkeep.sweep()
        judge.judge(self)
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
        return SimulatedReader(f"reader {number}", self.stream, archive, self.rng, may_skip=self.loses)

    def _events(self) -> list[Awaitable[None]]:
        hour = 3600.0
        plans: list[tuple[float, Callable[[], object]]] = [
            (self.pace_s, self._write),
            (30, self._replicate),
            (300, self._retain),
            (1.0 * hour, self._elect),
            (0.7 * hour, self._cut_off),
            (0.8 * hour, self._crash_node),
            (0.4 * hour, self._restart_agent),
            (0.3 * hour, self._kill_reader),
            (0.2 * hour, self._hop),
            (0.5 * hour, self._have_trouble),
            (0.5 * hour, self._pause_functions),
            (1.0 * hour, self._redrive),
            (0.5 * hour, self.upkeep.compact),
            (1.0 * hour, self.upkeep.sweep),
            (1.0 * hour, self._remove),
            (1.5 * hour, self._drift),
            (1.0 * hour, self._leave_alone),
            (0.7 * hour, self._cut_off_aws),
            (1.5 * hour, self._lose_disk),
        ]
        return [self._every(self.rng, *plan) for plan in plans] + [
            self._every(random.Random(f"{self.played.seed} {number}"), *plan)
            for number, plan in enumerate(self.others.plans())
        ]

    async def _every(self, rng: random.Random, mean_s: float, do: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(rng.expovariate(1 / mean_s))
            if (going := do()) is not None:
                await going  # type: ignore[misc]

    async def _pass(self, seconds: float, events: list[asyncio.Task[None]]) -> None:
        until = self.loop.time() + seconds
        while self.loop.time() < until:
            await asyncio.sleep(min(60.0, max(0.0, until - self.loop.time())))
            for one in (*self.agents, *self.readers):
                one.check()
            self.others.check()
            for task in events:
                if task.done():
                    task.result()

    # What happens.

    def _write(self) -> None:
        writers = [one for one in self.stream.replicas if one.alone and one.is_cut and not one.is_down]
        leader = self.stream.leader
        if leader is not None and not leader.is_down:
            writers.append(leader)
        if writers:
            writer = self.rng.choice(writers)
            self.stream.now_ms = self.loop.wall_ms() + self.rng.choice([0, 0, 0, -500])
            before = len(writer.on_disk)
            self.stream.write(writer, self.rng.choice([1, 2, 6]), tracks=True)
            self._wake(writer, before)

    def _replicate(self) -> None:
        before = [len(one.on_disk) for one in self.stream.replicas]
        self.stream.replicate()
        for one, segments in zip(self.stream.replicas, before, strict=True):
            self._wake(one, segments)

    def _wake(self, replica: ClusterReplica, before: int) -> None:
        if len(replica.on_disk) != before and self.rng.random() < 0.9:
            self.agents[replica.number].wake()

    def _retain(self) -> None:
        replica = self.rng.choice(self.stream.replicas)
        if replica.is_down:
            return
        for path in replica.expendable(self.rng.choice([1, 2, 5])):
            after = min(int(one.stem) for one in replica.segments if int(one.stem) > int(path.stem))
            if after > self.stream.next_offset:
                return  # not confirmed yet
            if not (self.loses or judge.is_safe(self, replica, path)):
                return
            self.say(f"node {replica.number}: retention deletes {int(path.stem)}")
            replica.delete_file(path)

    def _elect(self) -> None:
        leader = self.stream.elect()
        self.say(f"node {leader.number} leads epoch {self.stream.epoch}" if leader else "no majority elects")

    async def _cut_off(self) -> None:
        replica = self.rng.choice(self.stream.replicas)
        if any(one.is_cut or one.is_down for one in self.stream.replicas):
            return
        replica.is_cut = True
        self.say(f"node {replica.number} is cut off")
        await asyncio.sleep(self.rng.choice([5, 60, 600]))
        if self.stream.leader is replica and self.rng.random() < 0.8:
            self._elect()
        await asyncio.sleep(self.rng.choice([5, 60, 600]))
        replica.is_cut = False
        self.say(f"node {replica.number} is back")
        self._replicate()

    async def _crash_node(self) -> None:
        number = self.rng.randrange(len(self.stream.replicas))
        replica = self.stream.replicas[number]
        if any(one.is_cut or one.is_down for one in self.stream.replicas):
            return
        replica.is_down = True
        self.say(f"node {number} dies")
        await self.agents[number].kill()
        if self.stream.leader is replica:
            self._elect()
        await asyncio.sleep(self.rng.choice([30, 600, 3600]))
        replica.is_down = False
        self.say(f"node {number} starts")
        self._replicate()
        self.agents[number].start()

    async def _restart_agent(self) -> None:
        agent = self.rng.choice(self.agents)
        if agent.is_running:
            self.say(f"agent {agent.replica.number} is killed")
            await agent.kill()
            await asyncio.sleep(self.rng.choice([1, 60, 1800]))
            if not agent.replica.is_down:
                agent.start()

    async def _leave_alone(self) -> None:
        """Have no agent anywhere for a while, in worlds that may lose."""
        if self.loses:
            self.say("all agents are killed")
            for agent in self.agents:
                await agent.kill()
            await asyncio.sleep(self.rng.choice([600, 1800]))
            for agent in self.agents:
                if not agent.replica.is_down:
                    agent.start()

    async def _cut_off_aws(self) -> None:
        """Have no agent reach AWS for a while, in worlds that may lose: small disks fill up."""
        if self.loses:
            self.say("no agent reaches AWS")
            for agent in self.agents:
                agent.trouble.failing = 1.0
            await asyncio.sleep(self.rng.choice([600, 1800, 3600]))
            for agent in self.agents:
                agent.trouble.failing = 0.0
            self.say("agents reach AWS")

    async def _lose_disk(self) -> None:
        """Have a node come back with an empty disk, in worlds that may lose."""
        replica = self.rng.choice(self.stream.replicas)
        if not self.loses or any(one.is_cut or one.is_down for one in self.stream.replicas):
            return
        self.say(f"the disk of node {replica.number} is lost")
        replica.is_down = True
        await self.agents[replica.number].lose_disk()
        if self.stream.leader is replica:
            self._elect()
        leader = self.stream.leader
        assert leader is not None
        replica.make_anew(leader.kept_from)
        await asyncio.sleep(self.rng.choice([30, 600]))
        replica.is_down = False
        self._replicate()
        self.agents[replica.number].start()

    async def _kill_reader(self) -> None:
        reader = self.rng.choice(self.readers)
        await reader.kill()
        await asyncio.sleep(self.rng.choice([1, 60, 1800]))
        reader.start()

    def _hop(self) -> None:
        self.rng.choice(self.readers).source.hop()

    async def _have_trouble(self) -> None:
        trouble = self.rng.choice(self.troubles)
        trouble.failing = self.rng.choice([0.05, 0.3, 1.0])
        if trouble in (self.troubles[0], self.troubles[-1]):  # a function or a worker dies as a whole
            trouble.dying = self.rng.choice([0.0, 0.05, 0.2])
        await asyncio.sleep(self.rng.choice([60, 600]))
        trouble.failing = trouble.dying = 0.0

    async def _begin_without_functions(self) -> None:
        """Have nothing archived for a while."""
        self.queue.is_running = False
        await asyncio.sleep(2400)
        self.queue.is_running = True

    async def _pause_functions(self) -> None:
        self.queue.is_running = False
        await asyncio.sleep(self.rng.choice([60, 1200]))
        self.queue.is_running = True

    def _redrive(self) -> None:
        self.queue.redrive()

    def _remove(self) -> None:
        """Have retention of the archive remove what all consumers have read."""
        if self.removes:
            read = min(one.position for one in self.readers)
            self.upkeep.remove(Offset(self.rng.randrange(read + 1)))

    def _drift(self) -> None:
        self.rng.choice(self.agents).drift_s = self.rng.uniform(-3600, 3600)  # from its next start on

    # The end.

    async def _mend(self) -> None:
        self.say("everything works again")
        for trouble in self.troubles:
            trouble.failing = trouble.dying = 0.0
        for replica in self.stream.replicas:
            replica.is_down = replica.is_cut = False
        self.queue.is_running = True
        self._elect()
        self.others.mend()
        for _ in range(20):
            self._replicate()
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
                self._write()
            self._replicate()
            for agent in self.agents:
                agent.wake()
            self.queue.redrive()
            await self._pass(60, [])
            assert self.loop.time() < until, judge.unsettled(self)

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
        for what, number in (self.upkeep.done | self.others.figures()).items():
            count(what, number)
