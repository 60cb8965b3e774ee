"""A week of reconnects in virtual time: consumers come and go, and so do brokers, leaders and the archive.

    run_week(seed=1, days=7)

What is real is the gateway: its proxy and its takeover. The broker is `model_broker.py`, the archive `MemoryHistory`,
the network `memory_network.py`; all follow from the seed. Retention leaves the broker a few minutes of a stream, so
that whoever was away for longer goes on in the archive. At the end everything works again, and every consumer must
reach the end of its stream.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from coldstream.errors import UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.memory import MemoryArchive, MemoryHistory
from coldstream.live.delivered import chunk_of
from tests.gateway.faults.consumers import Consumer, Habits, Progress
from tests.gateway.faults.model_broker import ModelBroker
from tests.gateway.faults.model_log import ModelLog
from tests.gateway.faults.virtual_time import run_virtually, virtual_loop

DAY_S = 86_400.0
BROKER_PORT = 5552
CATCH_UP_S = 4 * 3600.0
STREAMS = ("orders", "payments")

OpenGateway = Callable[[int, MemoryHistory, GatewayFigures], Awaitable[Any]]
"""Opens what has a `port` and can be closed."""


@dataclass(frozen=True)
class Pace:
    """How much goes on. Times are means, in seconds."""

    write_s: float = 60
    archive_s: float = 90
    keep_chunks: int = 40
    presence: float = 1.0
    """How much longer consumers stay, and stay away, than it is their habit."""
    broker_restart_s: float = 8 * 3600
    leader_move_s: float = 6 * 3600
    cut_s: float = 1800
    stall_s: float = 3 * 3600
    failure_s: float = 4 * 3600
    forgotten_s: float = 12 * 3600


@dataclass
class WeekResult:
    """What has happened."""

    figures: GatewayFigures
    progress: list[Progress]
    faults: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        sessions = sum(one.sessions for one in self.progress)
        chunks = sum(one.chunks for one in self.progress)
        figures = self.figures
        return (
            f"{sessions} connections, {chunks} chunks, {figures.takeovers_total} takeovers,"
            f" {figures.handovers_total} handovers, {figures.returns_total} returns, faults {self.faults}"
        )


def run_week(
    open_gateway: OpenGateway, *, seed: int, days: float = 7, pace: Pace = Pace(), has_stats: bool | None = None
) -> WeekResult:
    """Live through it. Raises AssertionError at the first thing that is wrong."""
    return run_virtually(_Week(open_gateway, seed, days, pace, has_stats=has_stats).live(), seed)


class _Week:
    def __init__(
        self, open_gateway: OpenGateway, seed: int, days: float, pace: Pace, *, has_stats: bool | None
    ) -> None:
        self.rng = random.Random(seed)
        self.days = days
        self.pace = pace
        self.open_gateway = open_gateway
        self.broker = ModelBroker(has_stats=self.rng.random() < 0.7 if has_stats is None else has_stats)
        self.history = MemoryHistory()
        self.figures = GatewayFigures()
        self.archives: dict[str, MemoryArchive] = {}
        self.faults: dict[str, int] = {}
        self.consumers: list[Consumer] = []
        self.progress: list[Progress] = []
        self.is_over = False

    async def live(self) -> WeekResult:
        loop = virtual_loop()
        before = set(asyncio.all_tasks())
        self.broker.port = BROKER_PORT
        await self._start_broker()
        for stream in STREAMS:
            self._write(self.broker.declare(stream))
            self.archives[stream] = self.history.put("/", stream, [])
        gateway = await self.open_gateway(BROKER_PORT, self.history, self.figures)
        self._add_consumers(gateway.port)
        running = [asyncio.create_task(one.live()) for one in self.consumers]
        events = [asyncio.create_task(one) for one in self._events()]
        try:
            await self._pass(self.days * DAY_S, running, events)
            for task in events:
                task.cancel()
            await self._mend()
            await self._catch_up(loop.time() + CATCH_UP_S, running)
        finally:
            for task in (*running, *events):
                task.cancel()
            await asyncio.gather(*running, *events, return_exceptions=True)
        await asyncio.sleep(60)
        await gateway.close()
        self.server.close()
        await asyncio.sleep(60)
        self._check_nothing_is_left(set(asyncio.all_tasks()) - before)
        return WeekResult(self.figures, self.progress, self.faults)

    def _add_consumers(self, port: int) -> None:
        habits = (
            Habits(),
            Habits(stays_s=120, away_s=60, credit=2, store_every=1),
            Habits(stays_s=3600, away_s=4 * 3600, chunk_s=0.2, credit=50),
            Habits(stays_s=30, away_s=10, credit=1),
            Habits(stays_s=4 * 3600, away_s=1, chunk_s=45, credit=5, nap_rate=0.01, nap_s=3 * 3600),
        )
        for number, one in enumerate(habits):
            stream = STREAMS[number % len(STREAMS)]
            self._add(port, stream, Progress(self.broker.streams[stream], f"reader {number}"), one)
        group = Progress(self.broker.streams["orders"], "group")
        for _ in range(2):
            self._add(port, "orders", group, Habits(stays_s=1200, away_s=600, is_single=True))

    def _add(self, port: int, stream: str, progress: Progress, habits: Habits) -> None:
        if progress not in self.progress:
            self.progress.append(progress)
        presence = self.pace.presence
        habits = replace(habits, stays_s=habits.stays_s * presence, away_s=habits.away_s * presence)
        self.consumers.append(Consumer(port, stream, progress, habits, random.Random(self.rng.random())))

    def _events(self) -> list[Awaitable[None]]:
        pace = self.pace
        return [
            self._every(pace.write_s, self._write_somewhere),
            self._every(pace.archive_s, self._archive_some),
            self._every(pace.archive_s, self._retain),
            self._every(pace.cut_s, self._cut_a_connection),
            self._every(pace.leader_move_s, self._move_leader),
            self._every(pace.forgotten_s, self._forget_offsets),
            self._now_and_then(pace.broker_restart_s, 30, self._kill_broker, self._start_broker),
            self._now_and_then(pace.stall_s, 240, self._stall, self._flow),
            self._now_and_then(pace.failure_s, 120, self._fail, self._work_again),
        ]

    async def _every(self, mean_s: float, do: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / mean_s))
            do()

    async def _now_and_then(
        self, mean_s: float, lasts_s: float, begin: Callable[[], object], end: Callable[[], Awaitable[None] | None]
    ) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / mean_s))
            begin()
            await asyncio.sleep(self.rng.expovariate(1 / lasts_s))
            if (ending := end()) is not None:
                await ending

    def _count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def _write_somewhere(self) -> None:
        self._write(self.broker.streams[self.rng.choice(STREAMS)])
        self.broker.pump()

    def _write(self, log: ModelLog) -> None:
        for _ in range(self.rng.choice((1, 1, 3, 20))):
            log.write([b"%d" % (log.next_offset + at) for at in range(self.rng.choice((1, 2, 10, 50)))])
            if self.rng.random() < 0.05:
                log.track()

    def _archive_some(self) -> None:
        for stream, archive in self.archives.items():
            log = self.broker.streams[stream]
            missing = log.chunks[len(archive.chunks) :]
            for one in missing[: self.rng.randrange(len(missing) + 1)]:
                archive.chunks.append(chunk_of(one.delivered, source=stream))

    def _retain(self) -> None:
        for stream, archive in self.archives.items():
            # As an agent's pins have it: what is not archived can still be read, in the model at the broker.
            log = self.broker.streams[stream]
            log.retain(max(self.pace.keep_chunks, len(log.chunks) - len(archive.chunks)))

    def _cut_a_connection(self) -> None:
        connections = list(virtual_loop().network.connections)
        if connections:
            self._count("cut")
            self.rng.choice(connections).cut()

    def _move_leader(self) -> None:
        self._count("leader")
        self.broker.move_leader(self.rng.choice(STREAMS))

    def _forget_offsets(self) -> None:
        """Have the broker forget what retention has overtaken, as it does with its next snapshot of tracking."""
        self._count("forgotten")
        offsets = self.broker.offsets
        for reference, stream in list(offsets):
            if offsets[reference, stream] < self.broker.streams[stream].first_offset:
                del offsets[reference, stream]

    async def _start_broker(self) -> None:
        self.server = await virtual_loop().create_server(self.broker.connection, "127.0.0.1", BROKER_PORT)

    def _kill_broker(self) -> None:
        self._count("killed")
        self.server.close()
        self.broker.cut()

    def _stall(self) -> None:
        self._count("stall")
        archive = self.archives[self.rng.choice(STREAMS)]
        archive.flows.clear()
        if self.rng.random() < 0.5:
            archive.answers.clear()

    def _flow(self) -> None:
        for archive in self.archives.values():
            archive.flows.set()
            archive.answers.set()

    def _fail(self) -> None:
        self._count("failure")
        archive = self.archives[self.rng.choice(STREAMS)]
        archive.error = UnavailableError("the bucket is out, as asked for by a test")
        if self.rng.random() < 0.5:
            archive.question_error = UnavailableError("the table is out, as asked for by a test")

    def _work_again(self) -> None:
        for archive in self.archives.values():
            archive.error = archive.question_error = None

    async def _pass(self, seconds: float, running: list[asyncio.Task[None]], events: list[asyncio.Task[None]]) -> None:
        done, _ = await asyncio.wait([*running, *events], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _mend(self) -> None:
        self._flow()
        self._work_again()
        if not self.server.is_serving():
            await self._start_broker()
        for consumer in self.consumers:
            consumer.hurry()
        await asyncio.sleep(600)
        # Of a stream of which the broker has tracking chunks alone, only the next message tells who waits at its end
        # that retention has overtaken them.
        for log in self.broker.streams.values():
            log.write([b"the last one"])
        self.broker.pump()

    async def _catch_up(self, until_s: float, running: list[asyncio.Task[None]]) -> None:
        while any(one.covered < one.log.users_end for one in self.progress):
            await self._pass(10, running, [])
            behind = [f"{one.reference}: {one.covered} of {one.log.users_end}" for one in self.progress]
            assert virtual_loop().time() < until_s, f"not at the end: {behind}"

    def _check_nothing_is_left(self, tasks: set[asyncio.Task[object]]) -> None:
        assert not tasks, f"tasks are left: {tasks}"
        assert not self.history.open_readings
        assert not self.broker.connections
        assert not virtual_loop().network.connections
        figures = self.figures
        assert (figures.connections, figures.cold_subscriptions, figures.live_subscriptions) == (0, 0, 0), figures
        assert self.broker.most_credit <= 256
