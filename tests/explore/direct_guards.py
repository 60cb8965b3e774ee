"""The guards of direct streams and of jobs, as a program finds them (`guards`).

python -m tests.explore.direct_guards [--show GUARD NAMES FAULTS]      lists them, or hunts for one in one world
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tests.explore.direct_world import direct_world
from tests.explore.guards import (
    Guard,
    GuardKind,
    Guards,
    checks,
    heard,
    match_of,
    orders,
    rereads,
)
from tests.explore.hunting import Find
from tests.explore.jobs import jobs_world
from tests.explore.loose import EVENT, HEAD
from tests.explore.machine import Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.explore.playing import follow, written
from tests.explore.refusals import refusals
from tests.explore.schedules import moves_of
from tests.explore.searching import watched
from tests.explore.state_writes import conditions_of
from tests.explore.world import Faults

STREAMS = (
    "manifest.appending", "streams.flush.fragments", "streams.opening", "streams.recovery", "streams.trimming",
    "streams.wal.reader", "streams.wal.seal", "streams.wal.writer", "streams.wals",
)  # fmt: skip
JOBS = "jobs.attempt", "jobs.changes", "jobs.log_lines", "jobs.open_marks", "jobs.run", "jobs.store"

HEARD_STREAMS = ((("append", "appends", "closing", "trim"), ()), (("append", "closing", "trim"), ("append",)))
HEARD_JOBS = (
    (("work", "cancel", "pause", "edit", "drop", "create"), ()),
    (("remove",), ("work",)),
    (("resume", "work"), ("pause",)),
    (("remove",), ("work",)),
)
"""Who is listened to, and after whom."""


NEEDLESS = {
    "re-read: get_range in streams.wal.seal._kind": "an object of a log never changes",
    "re-read: listed in streams.wal.reader.WalReader._extend": "all below an end was there when the end was found",
}
"""What is read again, and would do as it was read first, and why: no guards."""


def direct_guards() -> list[Guard]:
    """Return the guards of direct streams, then those of jobs."""
    return [one for one in (*_of_streams(), *_of_jobs()) if str(one) not in NEEDLESS]


def _of_streams() -> Iterator[Guard]:
    """Yield them. The conditions of a transaction are the two of each change; that of an entry is the archive's."""
    yield from (Guard(GuardKind.CONDITION, one) for one in (HEAD, EVENT))
    yield from (Guard(GuardKind.REFUSAL, one) for one in refusals(STREAMS))
    yield from (Guard(GuardKind.CHECK, one) for one in checks(("streams",)))
    found: set[Guard] = set()
    for names, before in HEARD_STREAMS:
        for told in heard(names, before, direct_world).values():
            found |= {
                Guard(GuardKind.MATCH, f"{what} of {one.name}") for one in told if (what := match_of(one.request))
            }
            found |= {Guard(GuardKind.ORDER, *pair) for pair in orders(told)}
            found |= {Guard(GuardKind.REREAD, one) for one in rereads(told)}
    yield from sorted((one for one in found if _is_in(one, STREAMS)), key=str)


def _of_jobs() -> Iterator[Guard]:
    yield from (Guard(GuardKind.REFUSAL, one) for one in refusals(JOBS))
    yield from (Guard(GuardKind.CHECK, one) for one in checks(("jobs",)))
    found: set[Guard] = set()
    for names, before in HEARD_JOBS:
        for told in heard(names, before, jobs_world).values():
            found |= {Guard(GuardKind.STATE, name) for one in told for name in conditions_of(one)}
            found |= {Guard(GuardKind.ORDER, *pair) for pair in orders(told)}
            found |= {Guard(GuardKind.REREAD, one) for one in rereads(told)}
    yield from sorted(found, key=str)


def _is_in(guard: Guard, modules: Sequence[str]) -> bool:
    """Tell whether a guard is of some modules; else it is one of the archive's, and listed there."""
    return any(f" in {module}." in f"{guard.name}, {guard.then}" for module in modules)


def hunt_without(guards: Guards, names: str, faults: str, *, until_s: float | None = None) -> Find | None:
    """Return the shortest schedule of a world that ends badly without some guards, None if none is found in time."""
    with ExitStack() as stack:
        machine = watched(names, faults, alter=stack.enter_context(guards.taken_away()))
        stack.callback(machine.programs.close)
        try:
            search_nearest(machine, until_s=until_s)
        except Violation as err:
            return Find(written(names.split("+"), Faults.parse(faults), err.moves), str(err))
    return None


def play_without(guards: Guards, text: str) -> None:
    """Play a schedule without some guards. Raises Violation."""
    place, _, moves = text.partition(":")
    names, _, faults = place.partition("/")
    with ExitStack() as stack:
        machine = watched(names, faults, alter=stack.enter_context(guards.taken_away()))
        stack.callback(machine.programs.close)
        follow(machine, moves_of(moves), tell=False)


def main() -> None:
    """List all, or hunt for one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("guard", nargs="?", help="of the list; several, with ' + ' between them")
    parser.add_argument("worlds", nargs="*", help="such as append+closing/1c0l0r, one after the other")
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with reproducible():
        if options.guard is None:
            sys.stdout.writelines(f"{one}\n" for one in direct_guards())
            return
        for world in options.worlds:
            names, _, faults = world.partition("/")
            found = hunt_without(Guards.parse(options.guard), names, faults, until_s=options.seconds)
            if found is not None:
                sys.stdout.write(f"{options.guard}\t{found.text}\t{found.told}\n")
                return
        sys.stdout.write(f"{options.guard}\t-\tnone found\n")


if __name__ == "__main__":
    main()
