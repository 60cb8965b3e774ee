"""What happens to the stream: to its nodes, their agents, functions and consumers, and to what they ask of AWS."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from coldstream.units import Offset
from tests.simulation import judge
from tests.simulation.cluster import ClusterReplica

if TYPE_CHECKING:
    from tests.simulation.play import SimulatedWorld

BEGIN_S = 2400.0
"""So long nothing is archived in a world that begins without functions."""


async def every(rng: random.Random, mean_s: float, do: Callable[[], object]) -> None:
    """Have something happen again and again."""
    while True:
        await asyncio.sleep(rng.expovariate(1 / mean_s))
        if (going := do()) is not None:
            await going  # type: ignore[misc]


class Happenings:
    """All of it, by the world's own generator."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self.rng = world.rng
        self.loop = world.loop
        self.loses = world.loses
        self.stream = world.stream
        self.queue = world.queue
        self.agents = world.agents
        self.readers = world.readers
        self.troubles = world.troubles
        self.upkeep = world.upkeep
        self.front = world.front
        self.say = world.say
        self._removes = self.rng.random() < 0.5
        self._pace_s = self.rng.choice([60.0, 120.0])

    def plans(self) -> list[tuple[float, Callable[[], object]]]:
        """Return what happens how often, in seconds."""
        hour = 3600.0
        return [
            (self._pace_s, self.write),
            (30, self.replicate),
            (300, self._retain),
            (1.0 * hour, self.elect),
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

    def write(self) -> None:
        """Have a leader, or one that still believes that it is, write."""
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
            self.front.gateway.pump()

    def replicate(self) -> None:
        """Bring followers what they lack, and agents and clients the news of it."""
        before = [len(one.on_disk) for one in self.stream.replicas]
        self.stream.replicate()
        for one, segments in zip(self.stream.replicas, before, strict=True):
            self._wake(one, segments)
        self.front.gateway.pump()

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
            if not (self.loses or judge.is_safe(self._world, replica, path)):
                return
            self.say(f"node {replica.number}: retention deletes {int(path.stem)}")
            replica.delete_file(path)

    def elect(self) -> None:
        """Elect a leader."""
        leader = self.stream.elect()
        self.front.gateway.move_leader()
        self.say(f"node {leader.number} leads epoch {self.stream.epoch}" if leader else "no majority elects")

    async def _cut_off(self) -> None:
        replica = self.rng.choice(self.stream.replicas)
        if any(one.is_cut or one.is_down for one in self.stream.replicas):
            return
        replica.is_cut = True
        self.say(f"node {replica.number} is cut off")
        await asyncio.sleep(self.rng.choice([5, 60, 600]))
        if self.stream.leader is replica and self.rng.random() < 0.8:
            self.elect()
        await asyncio.sleep(self.rng.choice([5, 60, 600]))
        replica.is_cut = False
        self.say(f"node {replica.number} is back")
        self.replicate()

    async def _crash_node(self) -> None:
        number = self.rng.randrange(len(self.stream.replicas))
        replica = self.stream.replicas[number]
        if any(one.is_cut or one.is_down for one in self.stream.replicas):
            return
        replica.is_down = True
        self.front.lose_node(replica)
        self.say(f"node {number} dies")
        await self.agents[number].kill()
        if self.stream.leader is replica:
            self.elect()
        await asyncio.sleep(self.rng.choice([30, 600, 3600]))
        replica.is_down = False
        self.say(f"node {number} starts")
        self.replicate()
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
        self.front.lose_node(replica)
        await self.agents[replica.number].lose_disk()
        if self.stream.leader is replica:
            self.elect()
        leader = self.stream.leader
        assert leader is not None
        replica.make_anew(leader.kept_from)
        await asyncio.sleep(self.rng.choice([30, 600]))
        replica.is_down = False
        self.replicate()
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

    async def begin_without_functions(self) -> None:
        """Have nothing archived for a while."""
        self.queue.is_running = False
        await asyncio.sleep(BEGIN_S)
        self.queue.is_running = True

    async def _pause_functions(self) -> None:
        self.queue.is_running = False
        await asyncio.sleep(self.rng.choice([60, 1200]))
        self.queue.is_running = True

    def _redrive(self) -> None:
        self.queue.redrive()

    def _remove(self) -> None:
        """Have retention of the archive remove what all consumers have read."""
        if self._removes:
            read = min(one.position for one in self.readers)
            self.upkeep.remove(Offset(self.rng.randrange(read + 1)))

    def _drift(self) -> None:
        self.rng.choice(self.agents).drift_s = self.rng.uniform(-3600, 3600)  # from its next start on
