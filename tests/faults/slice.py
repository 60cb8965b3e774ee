"""The runs that CI plays: every operation of every service once, the kinds in turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenarios import SCENARIOS, FaultScenario
from tests.faults.judge import FaultJudge, Faults

SLICE = (
    "read",
    "streams",
    "doctor",
    "garbage",
    "compact",
    "policy",
    "upload",
    "scrub",
    "announce",
    "tick function",
    "API of streams",
    "appender of a direct stream",
)
"""The scenarios whose call sites together are all operations; `prove` tells if there is another."""


def runs_of_slice(judge: FaultJudge) -> Iterator[tuple[FaultScenario, Faults]]:
    """Give the runs, always the same ones."""
    kinds, seen = cycle(FaultKind), set[str]()
    for name in SLICE:
        scenario = SCENARIOS[name]
        for site in sorted(set(judge.expected(scenario).sites) - seen):
            seen.add(site)
            yield scenario, Faults(next(kinds), site, 0, lasts=len(seen) % 2 == 0)
