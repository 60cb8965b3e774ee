"""The gateway with its clients, and what happens to them, by a generator of their own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coldstream.gateway.gap_rules import GapAction, GapRules
from coldstream.gateway.takeover.options import TakeoverOptions
from tests.simulation.clients import GatewayClient
from tests.simulation.cluster import ClusterReplica, ReplicatedStream
from tests.simulation.gateway import SimulatedGateway
from tests.simulation.gateway_log import GatewayLog, Promises
from tests.simulation.inline_history import without_threads
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.watched import SimulatedStores

HOUR_S = 3600.0
CLIENTS = 2
BEGINNINGS_S = (0.0, 600.0, 1500.0)
WAIT_S = 60.0


class GatewaySide:
    """All of it. `may_lose` is whether something may be lost in this world: then gaps are skipped."""

    def __init__(self, seed: int, stream: ReplicatedStream, stores: SimulatedStores, *, may_lose: bool) -> None:
        self._rng = rng = random.Random(f"gateway {seed}")
        self.trouble = Trouble(rng)
        action = GapAction.SKIP if may_lose else rng.choice(list(GapAction))
        options = TakeoverOptions(GapRules(otherwise=action), archive_wait_s=WAIT_S, archive_poll_s=5.0)
        table, objects = Troubled(stores.table, self.trouble), Troubled(stores.objects, self.trouble)
        self.gateway = SimulatedGateway(rng, table, objects, options)
        self.promises = Promises(stores.table, stores.erased, WAIT_S, may_lose=may_lose)
        self.clients = [GatewayClient(at, self.gateway, stream, rng, self.promises) for at in range(CLIENTS)]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the gateway run without threads, and listen to what it says."""
        with without_threads(self._rng), GatewayLog(self.promises).listening():
            yield

    def plans(self) -> list[tuple[float, Callable[[], object]]]:
        """Return what happens how often, in seconds."""
        return [
            (0.5 * HOUR_S, self._kill),
            (0.3 * HOUR_S, self._kill_client),
            (0.5 * HOUR_S, self._hop),
            (0.5 * HOUR_S, self._have_trouble),
        ]

    def begin(self) -> None:
        """Start the gateway, and its clients soon."""
        self.gateway.start()
        for one in self.clients:
            asyncio.get_running_loop().call_later(self._rng.choice(BEGINNINGS_S), one.start)

    def lose_node(self, replica: ClusterReplica) -> None:
        """Cut the connections to a node that died."""
        self.gateway.lose_node(replica)

    def check(self) -> None:
        """Raise what is wrong."""
        for one in self.clients:
            one.check()
        assert not self.promises.problems, self.promises.problems[0]

    def mend(self) -> None:
        """Have everything work."""
        self.trouble.failing = 0.0
        self.gateway.start()
        for one in self.clients:
            one.start()

    def unsettled(self) -> str:
        """Say what is left to do."""
        left = (f"{one.name} is at {one.position}" for one in self.clients if one.lacks)
        return next(left, "")

    async def end(self) -> None:
        """End all, and look at what is left."""
        for one in self.clients:
            await one.kill()
        await self.gateway.kill(gently=True)
        self.check()

    def figures(self) -> dict[str, int]:
        """Return what was done."""
        found = {
            "lives of gateways": self.gateway.lives,
            "chunks read through gateways": sum(one.chunks for one in self.clients),
            "chunks that clients passed by": sum(one.passed_by for one in self.clients),
        }
        found |= {f"gateway: {name}": number for name, number in self.gateway.totals.items()}
        found |= {f"gateway ends by {name}": number for name, number in self.promises.ends.items()}
        for one in self.clients:
            for why, number in one.endings.items():
                found[f"client: {why}"] = found.get(f"client: {why}", 0) + number
        return found

    async def _kill(self) -> None:
        await self.gateway.kill(gently=self._rng.random() < 0.5)
        await asyncio.sleep(self._rng.choice([1, 60]))
        self.gateway.start()

    async def _kill_client(self) -> None:
        one = self._rng.choice(self.clients)
        await one.kill()
        await asyncio.sleep(self._rng.choice([1, 60, 900]))
        one.start(anew=self._rng.random() < 0.6)

    def _hop(self) -> None:
        self._rng.choice(self.clients).hop()

    async def _have_trouble(self) -> None:
        self.trouble.failing = self._rng.choice([0.1, 0.5, 1.0])
        await asyncio.sleep(self._rng.choice([10, 60, 300]))
        self.trouble.failing = 0.0
