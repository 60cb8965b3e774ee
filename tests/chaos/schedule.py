"""What goes wrong in a chaos run, and when: drawn from a seed, so that a run that failed can be had again.

Each part of the world has a story of its own, up and down in turns. The stories meet as they may.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.readers import Place, Start
from tests.support.faults import Faults

AGENT_KEY = "agent"
"""The agent's access key, the one whose credentials expire."""


class Action(StrEnum):
    """What is done to the world."""

    AWS = "AWS"
    AGENT_KILL = "the agent is killed"
    AGENT_STOP = "the agent is stopped"
    AGENT_START = "the agent is started"
    BROKER_KILL = "the broker is killed"
    BROKER_STOP = "the broker is stopped"
    BROKER_START = "the broker is started"
    UPLOAD_KILL = "the upload function is killed"
    RESOLVER_KILL = "the resolver function is killed"
    READER_BEGIN = "a consumer comes"
    READER_END = "a consumer goes"


@dataclass(frozen=True, slots=True)
class Step:
    """One action, `at_s` seconds after the start of the run. `reader` is the number of the consumer it is about."""

    at_s: float
    action: Action
    faults: Faults | None = None
    reader: int | None = None
    start: Start | None = None

    def __str__(self) -> str:
        details = [str(detail) for detail in (self.reader, self.start, self.faults) if detail is not None]
        return " ".join([f"{self.at_s:6.1f} s  {self.action}", *details])


def schedule(seed: int, seconds: float) -> list[Step]:
    """Return the steps of a run in their order."""
    stories = (_aws, _agent, _broker, _functions, _readers)
    steps = [step for at, story in enumerate(stories) for step in story(random.Random(f"{seed}/{at}"), seconds)]
    return sorted((step for step in steps if step.at_s < seconds), key=lambda step: step.at_s)


def _aws(rng: random.Random, seconds: float) -> Iterator[Step]:
    for down_s, up_s in _turns(rng, seconds, up=(2, 8), down=(1, 6)):
        faults = rng.choice(
            [
                Faults(error_rate=rng.uniform(0.1, 0.6)),
                Faults(error_rate=0.1, drop_rate=rng.uniform(0.05, 0.3)),
                Faults(latency_s=rng.uniform(0.05, 0.4)),
                Faults(is_out=True),
                Faults(expired=AGENT_KEY),
            ]
        )
        yield Step(down_s, Action.AWS, faults)
        yield Step(up_s, Action.AWS, Faults())


def _agent(rng: random.Random, seconds: float) -> Iterator[Step]:
    # No longer than this: what retention deletes before it was ever pinned is lost, and that is not what is tried here.
    for down_s, up_s in _turns(rng, seconds, up=(4, 12), down=(0, 1.5)):
        yield Step(down_s, Action.AGENT_KILL if rng.random() < 0.8 else Action.AGENT_STOP)
        yield Step(up_s, Action.AGENT_START)


def _broker(rng: random.Random, seconds: float) -> Iterator[Step]:
    for down_s, up_s in _turns(rng, seconds, up=(12, 25), down=(0, 4)):
        yield Step(down_s, rng.choice([Action.BROKER_KILL, Action.BROKER_STOP]))
        yield Step(up_s, Action.BROKER_START)


def _functions(rng: random.Random, seconds: float) -> Iterator[Step]:
    for down_s, _ in _turns(rng, seconds, up=(3, 10), down=(0, 0)):
        yield Step(down_s, rng.choice([Action.UPLOAD_KILL, Action.UPLOAD_KILL, Action.RESOLVER_KILL]))


def _readers(rng: random.Random, seconds: float) -> Iterator[Step]:
    """The first stays from the beginning to the end; one with a name comes again and again; the others come and go."""
    yield Step(0.0, Action.READER_BEGIN, reader=0, start=Start("first"))
    keys = itertools.count(1)
    for name, lives in (("named", (3.0, 12.0)), (None, (2.0, 20.0)), (None, (2.0, 20.0))):
        now_s = rng.uniform(0, 5)
        while now_s < seconds:
            key = next(keys)
            places: list[Place] = ["first", "next", rng.random(), rng.random()]
            pace = rng.choice([None, None, rng.randrange(20, 200)])
            yield Step(now_s, Action.READER_BEGIN, reader=key, start=Start(rng.choice(places), name, pace))
            now_s += rng.uniform(*lives)
            yield Step(now_s, Action.READER_END, reader=key)
            now_s += rng.uniform(0.5, 5)


def _turns(
    rng: random.Random, seconds: float, *, up: tuple[float, float], down: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """Yield when something goes down and when it comes back, for as long as the run lasts."""
    now_s = 0.0
    while now_s < seconds:
        down_s = now_s + rng.uniform(*up)
        now_s = down_s + rng.uniform(*down)
        yield down_s, now_s
