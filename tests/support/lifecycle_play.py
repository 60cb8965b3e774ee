"""Plays schedules of a stream's life, and says how to play a failed one again.

python -m tests.support.lifecycle_play "drop regret" "drop=9 regret drop"
python -m tests.support.lifecycle_play 17                                   # the random life of that seed
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.support.compacting import Inline
from tests.support.interleavings import Call, Fate, Played, Schedule, Step
from tests.support.lifecycle_actors import PLAIN, UPLOADS, WATCHING, put_on_stage
from tests.support.lifecycle_model import Model
from tests.support.lifecycle_world import LifecycleWorld

ACTORS = (*PLAIN, *UPLOADS, "outrun", *WATCHING)

POOLS = (
    "archive.staged_segment",
    "archive.upload",
    "compact.blocks",
    "flow.frame_sink",
    "compact.merge",
    "compact.part_upload",
    "compact.run",
    "lifecycle.deletes",
    "rebuild.entries",
)


@contextmanager
def reproducible() -> Iterator[pytest.MonkeyPatch]:
    """Have no delays, and each process do one thing at a time: the schedule alone decides."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: None)
        for module in POOLS:
            patch.setattr(f"coldstream.{module}.ThreadPoolExecutor", Inline)
        yield patch


def player(names: Sequence[str], *, host_ahead_ms: dict[str, int] | None = None) -> Played:
    """Return what plays a schedule of these actors, each time in a new world."""

    def play(schedule: Schedule) -> dict[str, list[Call]]:
        world = LifecycleWorld()
        world.host_ahead_ms = host_ahead_ms or {}
        _play(world, names, schedule)
        return {name: actor.calls for name, actor in world.stage.actors.items()}

    return play


def pair(first: str, second: str) -> tuple[str, str]:
    """Return two names, even if both are of one kind."""
    return first, second if second != first else f"{second}.2"


def play_random(seed: int) -> None:
    """Play the life of a seed: three to five actors, any of which may die, or hear no answer, at any call.

    A third of the buckets keep versions.
    """
    rng = random.Random(seed)
    kinds = rng.sample(ACTORS, rng.randrange(3, 6))
    names = [*kinds, *(f"{kind}.2" for kind in kinds if rng.random() < 0.1)]
    steps = []
    for _ in range(rng.randrange(6, 30)):
        fate = rng.choices(list(Fate), [8, 1, 1])[0]
        steps.append(Step(rng.choice(names), rng.randrange(1, 9), fate))
    world = LifecycleWorld(weak=rng if rng.random() < 0.6 else None, versioned=seed % 3 == 0)
    try:
        _play(world, names, Schedule(tuple(steps)))
    except BaseException as err:
        err.add_note(f"seed {seed}: {' '.join(names)}")
        raise


def _play(world: LifecycleWorld, names: Sequence[str], schedule: Schedule) -> None:
    model = Model(world)
    put_on_stage(world, model, names)
    try:
        world.stage.play(schedule)
        model.check_end()
    except BaseException as err:
        err.add_note(f'python -m tests.support.lifecycle_play "{" ".join(names)}" "{schedule}"')
        raise


def main(arguments: Sequence[str]) -> None:
    """Play what the command line says."""
    with reproducible():
        if len(arguments) == 1:
            play_random(int(arguments[0]))
        else:
            names, schedule = arguments
            calls = player(names.split())(Schedule.parse(schedule))
            for name, made in calls.items():
                told = (f"\n  {number:3} {call.name} {call.about}" for number, call in enumerate(made, start=1))
                sys.stdout.write("".join((name, *told, "\n")))


if __name__ == "__main__":
    main(sys.argv[1:])
