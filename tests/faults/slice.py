"""The runs that CI plays: every operation of every service once, the kinds in turn, and those that once were wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tests.faults.call_sites import CallSites
from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenario import FaultScenario
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.judge import Faults

SLICE = (
    "read from a time",
    "streams",
    "doctor",
    "garbage",
    "compact",
    "policy",
    "upload",
    "scrub",
    "announce",
    "tick function",
    "console's jobs",
    "dead-letters discard",
    "API of streams",
    "appender of a direct stream",
    "quarantine retry",
    "quarantine discard",
    "rebuild all",
    "recover what a lost node had",
    "purge in a bucket with versions",
    "announce in parts",
    "hold",
    "hold release",
    "policy rm",
    "restore",
    "retention into another class",
    "erase, resumed",
    "shards apply",
)
"""The scenarios whose call sites together are all operations; `prove` tells if there is another."""

ONCE_WRONG = (
    ("console creates a job", Faults(FaultKind.ERROR_500, "TransactWriteItems", 0, lasts=True)),
    ("console creates a job", Faults(FaultKind.PROXY_PAGE, "TransactWriteItems", 0, lasts=True)),
    ("scrub", Faults(FaultKind.WRONG_CHECKSUM, "HEAD data", 0, lasts=False)),
    ("scrub", Faults(FaultKind.WRONG_CHECKSUM, "HEAD data", 0, lasts=True)),
    ("compact", Faults(FaultKind.WRONG_BYTES, "GET data", 0, lasts=True)),
    ("console's messages", Faults(FaultKind.WRONG_BYTES, "GET data", 0, lasts=True)),
    ("gateway's history", Faults(FaultKind.DENIED, "PutItem", 0, lasts=False)),
    ("resolve a time precisely", Faults(FaultKind.WRONG_BYTES, "GET data", 0, lasts=True, chance=29_984)),
    ("resolve precisely", Faults(FaultKind.WRONG_BYTES, "GET data", 0, lasts=False, chance=51_544)),
    ("rebuild all", Faults(FaultKind.WRONG_BYTES, "GET data", 0, lasts=True, chance=22_752)),
    ("recover", Faults(FaultKind.WRONG_BYTES, "GET spans", 0, lasts=True)),
    ("server of streams", Faults(FaultKind.REDIRECT, "PUT wal", 5, lasts=True)),
    ("jobs delete", Faults(FaultKind.TIMEOUT_BEFORE, "Query", 1, lasts=True)),
    ("jobs delete", Faults(FaultKind.WRONG_LENGTH, "DeleteItem", 2, lasts=True)),
    ("worker with a load into a stream", Faults(FaultKind.TIMEOUT_BEFORE, "TransactWriteItems", 0, lasts=True)),
)
"""Runs that a long proof found, by scenario."""


def runs_of_slice(sites_of: Callable[[FaultScenario], CallSites]) -> Iterator[tuple[FaultScenario, Faults]]:
    """Give the runs, always the same ones: of the kinds that take effect at a call site, the one that had fewest."""
    had, seen = Counter[FaultKind](), set[str]()
    for name in SLICE:
        scenario = SCENARIOS[name]
        sites = sites_of(scenario)
        for site in sites.kinds:
            if site not in seen:
                seen.add(site)
                # Few requests may be answered with what was: where one may, that comes first.
                kind = min(
                    (kind for one, kind in sites.pairs() if one == site),
                    key=lambda one: (had[one], one is not FaultKind.STALE),
                )
                had[kind] += 1
                yield scenario, Faults(kind, site, sites.turns(site, kind)[0], lasts=len(seen) % 2 == 0)
