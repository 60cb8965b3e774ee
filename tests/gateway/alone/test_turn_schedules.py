"""Turns of single active consumers in many schedules: processes stall, die, join and leave between any two requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

import pytest

from coldstream.errors import LostRaceError, OutcomeUnknownError, UnavailableError
from coldstream.gateway.alone.consumer_turns import ConsumerTurns
from coldstream.gateway.alone.turn_seat import TurnSeat
from coldstream.gateway.alone.turns import TurnName
from coldstream.store.memory.table import MemoryTable

P = ParamSpec("P")
T = TypeVar("T")
LEASE_S = 10.0
NAMES = (TurnName("/", "orders", "readers"), TurnName("/", "orders-1", "readers"))
PLACES = {NAMES[0]: None, NAMES[1]: 1}


class TurnWorld:
    """A clock that all see, a table, and processes."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 1000.0
        self.table = MemoryTable()
        self.processes: list[TurnProcess] = []

    def check(self) -> None:
        """Fail if two may send at a time."""
        for name in NAMES:
            sending = [
                (process.number, seat.number)
                for process in self.processes
                for seat in process.seats
                if seat.name == name and process.turns.may_send(seat)
            ]
            assert len(sending) <= 1, f"{name}: {sending}"


class TurnProcess:
    """A process, whose requests take as long as the schedule says. A stalled one makes none."""

    def __init__(self, world: TurnWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.is_stalled = self.is_dead = False
        self.seats: list[TurnSeat] = []
        self.turns = ConsumerTurns(world.table, lease_s=LEASE_S, every_s=3600, calls=self.call, clock=lambda: world.now)
        # Steps are made by the schedule alone.
        self.turns._wake = lambda: None  # type: ignore[method-assign]
        self.stepping: asyncio.Task[None] | None = None

    async def call(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        dice = self.world.dice
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        await self._stand()
        if dice.random() < 0.02:
            raise UnavailableError("the table did not answer")
        answer = call(*args, **kwargs)
        if dice.random() < 0.02:
            raise OutcomeUnknownError("the answer was lost")
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        await self._stand()
        return answer

    async def _stand(self) -> None:
        while self.is_stalled or self.is_dead:  # noqa: ASYNC110  the schedule decides when it goes on
            await asyncio.sleep(0)

    def join(self) -> None:
        name = self.world.dice.choice(NAMES)
        told: list[bool] = []

        async def deactivate() -> None:
            for _ in range(self.world.dice.randrange(6)):
                await asyncio.sleep(0)
            told.append(False)

        self.seats.append(self.turns.join(name, PLACES[name], lambda: told.append(True), deactivate))

    def leave(self) -> None:
        seat = self.seats.pop(self.world.dice.randrange(len(self.seats)))
        self.turns.leave(seat)

    def step(self) -> None:
        if (self.stepping is None or self.stepping.done()) and self.turns._seats and not self.is_dead:
            self.stepping = asyncio.create_task(self._step())

    async def _step(self) -> None:
        with suppress(UnavailableError, OutcomeUnknownError, LostRaceError):
            await self.turns.step()


def disturb(world: TurnWorld) -> None:
    """Do one thing to one process, by chance."""
    dice = world.dice
    process = dice.choice(world.processes)
    match dice.randrange(20):
        case 0 if len(process.seats) < 3 and not process.is_dead:
            process.join()
        case 1 if process.seats and dice.random() < 0.4 and not process.is_dead:
            process.leave()
        case 2 if dice.random() < 0.3:
            process.is_stalled = not process.is_stalled
        case 3 if dice.random() < 0.05 and sum(one.is_dead for one in world.processes) < 2:
            process.is_dead = True
        case 4:
            world.now += dice.random() * LEASE_S / 2
        case _:
            process.step()


async def go_on(world: TurnWorld) -> None:
    """Let those that live go on undisturbed, for several leases."""
    for _ in range(400):
        for process in world.processes:
            process.is_stalled = False
            process.step()
        world.now += 0.2
        for _ in range(8):
            await asyncio.sleep(0)
            world.check()


@pytest.mark.parametrize("seed", range(40))
async def test_nobody_sends_while_another_may_and_in_the_end_somebody_does(seed: int) -> None:
    world = TurnWorld(seed)
    world.processes = [TurnProcess(world, number) for number in range(3)]
    for _ in range(600):
        disturb(world)
        world.now += world.dice.random() * 0.2
        world.check()
        for _ in range(world.dice.randrange(4)):
            await asyncio.sleep(0)
            world.check()
    await go_on(world)
    for name in NAMES:
        alive = [one for one in world.processes if not one.is_dead]
        waiting = [(one, seat) for one in alive for seat in one.seats if seat.name == name]
        assert not waiting or sum(one.turns.may_send(seat) for one, seat in waiting) == 1, name
    for process in world.processes:
        if process.stepping is not None:
            process.stepping.cancel()
            await asyncio.wait([process.stepping])
