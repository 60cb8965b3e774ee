"""The long checks, what each is about, its share of the time, and how it is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Task:
    """What a part is asked for: so many hours, from a seed on, with its figures to be written to a file."""

    hours: float
    seed: int
    figures: Path


@dataclass(frozen=True, slots=True)
class ProofPart:
    """A long check. `share` is its part of the time, as weights."""

    name: str
    about: str
    share: float

    def command(self, task: Task) -> list[str]:
        """Return what runs it. It ends with 0 if nothing was found."""
        raise NotImplementedError

    def environment(self, task: Task) -> Mapping[str, str]:
        """Return the variables that it reads."""
        return {}

    def planned(self, task: Task) -> Mapping[str, int]:
        """Return figures that are known before it runs."""
        return {}


@dataclass(frozen=True, slots=True)
class OwnPart(ProofPart):
    """A check that minds the time itself, and writes its figures: `python -m MODULE --hours …`."""

    module: str
    seed_option: str | None = "--seed"
    options: tuple[str, ...] = ()

    def command(self, task: Task) -> list[str]:
        seed = [self.seed_option, str(task.seed)] if self.seed_option else []
        return [
            *(sys.executable, "-m", self.module),
            *("--hours", f"{task.hours:.4f}", "--figures", str(task.figures)),
            *seed,
            *self.options,
        ]


@dataclass(frozen=True, slots=True)
class TestPart(ProofPart):
    """Tests that play as many seeds as a variable says. `counts` has what is played, by variable, and how many a second
    a slow machine plays."""

    __test__ = False

    tests: tuple[str, ...]
    counts: Mapping[str, tuple[str, float]] = field(hash=False)

    def command(self, task: Task) -> list[str]:
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self.tests, "--timeout", "0"]

    def environment(self, task: Task) -> Mapping[str, str]:
        counts = {name: str(self._count(task, a_second)) for name, (_, a_second) in self.counts.items()}
        return {**counts, "COLDSTREAM_FIRST_SEED": str(task.seed)}

    def planned(self, task: Task) -> Mapping[str, int]:
        return {what: self._count(task, a_second) for what, a_second in self.counts.values()}

    def _count(self, task: Task, a_second: float) -> int:
        return max(1, int(task.hours * 3600 * a_second))


PARTS: tuple[ProofPart, ...] = (
    OwnPart("explorer", "every state of small worlds, by the shipped code", 6, "tests.explore.prove"),
    OwnPart("guards", "what goes wrong without each guard", 2, "tests.explore.hunting", seed_option=None),
    OwnPart(
        "model", "the model in TLA+, and the explorer's steps held against it", 2, "tests.model.prove", seed_option=None
    ),
    OwnPart(
        "simulation",
        "agents, consumers, gateway, jobs and appenders on virtual time",
        3,
        "tests.simulation.prove",
        seed_option="--first",
    ),
    OwnPart(
        "faults",
        "stores that misbehave, under every command and function",
        6,
        "tests.faults.prove",
        options=("--processes", "1"),  # the other cores have other parts
    ),
    TestPart(
        "shards",
        "sharded streams, by seed",
        1,
        ("tests/shards/test_fast_simulation.py", "tests/shards/test_simulation.py"),
        {
            "COLDSTREAM_FAST_SCHEDULES": ("schedules of plain lists", 600),
            "COLDSTREAM_SHARD_SCHEDULES": ("schedules", 5),
        },
    ),
    TestPart(
        "histories",
        "direct streams, whose histories Porcupine judges",
        2,
        ("tests/linearizability",),
        {"COLDSTREAM_STREAM_HISTORIES": ("plays", 2.5)},
    ),
    OwnPart("parsers", "every parser, fuzzed", 6, "tests.fuzz.prove"),
    OwnPart("mutation", "small mistakes that a test has to notice", 6, "tests.mutation.prove"),
)
