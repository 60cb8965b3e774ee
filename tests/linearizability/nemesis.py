"""What goes wrong in a play: hosts die and come back, freeze while others take over, and the network has its days."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.linearizability.faulty_stores import Network
from tests.linearizability.virtual_loop import Life, Process, VirtualLoop

LIVES = 4
"""Processes that a host has at most, one after the other."""


@dataclass(slots=True)
class Host:
    """A host: one process at a time, and a clock that is `ahead_ms` of the others."""

    number: int
    ahead_ms: int
    process: Process
    lives: int = 0
    is_done: bool = False


async def haunt(  # noqa: PLR0917  all that it plays with
    rng: random.Random,
    loop: VirtualLoop,
    network: Network,
    hosts: Sequence[Host],
    begin: Callable[[Host], None],
    counts: Counter[str],
) -> None:
    """Have things go wrong until it is cancelled. `begin` starts a host's next process."""
    weather = network.weather
    while True:
        await asyncio.sleep(rng.expovariate(1))
        host, what = rng.choice(hosts), rng.random()
        if what < 0.2:
            if host.lives < LIVES and not host.is_done and host.process.life is not Life.DEAD:
                counts["kill"] += 1
                host.process.kill()
                loop.call_later(rng.expovariate(1), begin, host)
        elif what < 0.4:
            counts["freeze"] += 1
            host.process.freeze()
            loop.call_later(rng.choice((0.2, 2, 10, 40)) * rng.random(), host.process.thaw)
        elif what < 0.5:
            weather.is_out = True
            await asyncio.sleep(rng.expovariate(0.3))
            weather.is_out = False
        elif what < 0.8:
            weather.refused, weather.lost = rng.choice((0, 0.05, 0.3)), rng.choice((0, 0.05, 0.2, 0.4))
            weather.sent_twice, weather.slow = rng.choice((0, 0.1, 0.3)), rng.choice((0, 0.1, 0.4))
        else:
            weather.clear()
