"""A run: something is done on a small archive while its stores misbehave; then again, without faults; then all is read.

A run is right if no wrong byte was shown, no offset was lost, and an error names the place: what was asked, or of what.
"""

from __future__ import annotations

import gc
import random
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from coldstream.errors import ColdstreamError
from tests.faults.call_sites import CallSites, Coverage, call_site
from tests.faults.fault_acts import Outcome, command
from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenario import FaultScenario
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.faulty_world import ORDERS, PREFIX, REBUILT, FaultyWorld, Worlds
from tests.faults.fork import ForkError, forked
from tests.faults.http_messages import HttpRequest
from tests.faults.memory_network import RESOLVER_HOST
from tests.faults.same_ids import same_ids

TRIES = 3
_PLACES = (
    REBUILT,
    ORDERS.name,
    ORDERS.incarnation,
    RESOLVER_HOST,
    "-of-7f3a",
    f" {PREFIX}",
    "event bus default",
    "manifest",
    "bad: bucket: ",
    "bad: table: ",
    "bad: streams: ",
    "list of",
    "clock",
    "read of #",
    "read of heads",
    "state item #",
    "#job",
    "job ",
    "cursor ",
    "dead letter '",
    "grant ",
    "policy ",
    "urn:coldstream:request:",
)
"""An error has one of these, or the number of a request, of which the resolver's log says more."""

_SCRUB = command("scrub", "orders", "--deep", "--restart")


class FaultyRunError(AssertionError):
    """A run ended as none may."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What becomes of a request of a call site, the `nth` from 0 on: of it alone, or of all later that ask the same.

    `chance` decides which byte of an answer is another.
    """

    kind: FaultKind
    site: str
    nth: int
    lasts: bool
    chance: int = 0

    def fate(self, outage: int | None = None) -> FateOfOne:
        """Return what decides about each request of one run; what lasts ends after `outage` requests."""
        return FateOfOne(self, outage)


@dataclass(slots=True)
class FateOfOne:
    """Decides; it counts requests of the call site, and remembers which operation was struck.

    It counts those of one site, as calls of several threads come in any order.
    """

    faults: Faults
    outage: int | None = None
    seen: int = 0
    struck: int = 1
    operation: str | None = None

    def __call__(self, request: HttpRequest, number: int) -> FaultKind | None:
        if self.operation is None:
            if call_site(request) != self.faults.site:
                return None
            self.seen += 1
            if self.seen <= self.faults.nth:
                return None
            self.operation = request.operation
            return self.faults.kind
        if not self.faults.lasts or request.operation != self.operation or self.struck == self.outage:
            return None
        self.struck += 1
        return self.faults.kind


@dataclass(frozen=True, slots=True)
class Expected:
    """What a scenario gives without faults: its call sites, what it shows, and what is archived then."""

    sites: CallSites
    shown: bytes
    archived: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: `struck` are the call sites that were answered otherwise, `wrong` is what may not be.

    `left` is the state in which it left the world, if it is right.
    """

    faults: Faults
    struck: tuple[str, ...] = ()
    wrong: str | None = None
    left: str | None = None


@dataclass
class FaultJudge:
    """Plays runs, and judges them.

    A scenario is prepared once for all of its runs: each has a copy of this process, in which nothing else happens.
    `_sound` are states, by scenario, that were found to be right: what is left so is not read and scrubbed again.
    """

    worlds: Worlds
    coverage: Coverage = field(default_factory=Coverage)
    _sound: set[tuple[str, str]] = field(default_factory=set)
    _expected: dict[str, Expected] = field(default_factory=dict)

    def expected(self, scenario: FaultScenario) -> Expected:
        """Do it without faults, once; in this process, which knows all modules then that the runs need."""
        if scenario.name not in self._expected:
            with self._prepared(scenario) as world:
                with same_ids("run"):
                    outcome = scenario.act(world)
                if outcome.problem is not None:
                    raise FaultyRunError(f"{scenario.name} fails without faults: {outcome}")
                if not world.entered >= scenario.does:
                    raise FaultyRunError(f"{scenario.name} does not do what it says: {scenario.does - world.entered}")
                sites = CallSites.of_requests(world.network.asked)
                self._look_after(scenario, world, scenario.name)
                is_changed, left = world.network.is_changed, world.state()
                self._expected[scenario.name] = Expected(sites, outcome.shown, _archived(scenario, world))
                if is_changed:
                    _scrub(world, scenario.name)
                    self._sound.add((scenario.name, left))
        return self._expected[scenario.name]

    def play(self, scenario: FaultScenario, faults: Faults) -> bool:
        """Play a run; return whether a fault took effect. Raises FaultyRunError."""
        (end,) = self.play_all(scenario, [faults])
        if end.wrong is not None:
            raise FaultyRunError(end.wrong)
        return bool(end.struck)

    def play_all(self, scenario: FaultScenario, all_faults: Iterable[Faults]) -> Iterator[RunEnd]:
        """Play runs of a scenario, each from where it is prepared."""
        expected = self.expected(scenario)
        with self._prepared(scenario) as world:
            for faults in all_faults:
                end = self._forked(scenario, world, faults)
                if end.left is not None:
                    self._sound.add((scenario.name, end.left))
                self.coverage.add(scenario.name, expected.sites, faults.kind, end.struck)
                yield end

    def scenario_of(self, seed: int) -> FaultScenario:
        """Return the scenario of a seed: they take turns."""
        return SCENARIOS[list(SCENARIOS)[seed % len(SCENARIOS)]]

    def of_seed(self, seed: int) -> tuple[FaultScenario, Faults]:
        """Return the run of a seed: in each scenario its call sites by kinds take turns; the rest is chance."""
        rng = random.Random(seed)
        scenario, turn = self.scenario_of(seed), seed // len(SCENARIOS)
        sites = self.expected(scenario).sites
        pairs = sites.pairs()
        random.Random(scenario.name).shuffle(pairs)  # so that a short proof has some of all
        site, kind = pairs[turn % len(pairs)]
        nth, lasts = rng.choice(sites.turns(site, kind)), rng.random() < 0.5
        return scenario, Faults(kind, site, nth, lasts=lasts, chance=rng.randrange(1 << 16))

    @contextmanager
    def _prepared(self, scenario: FaultScenario) -> Iterator[FaultyWorld]:
        with self.worlds.world() as world:
            world.upload(scenario.uploaded)
            for act in scenario.prepared:
                with same_ids(f"prepared {act}"):
                    outcome = act(world)
                if outcome.problem is not None:
                    raise FaultyRunError(f"{scenario.name} could not be prepared: {outcome}")
            world.network.begin(lambda request, number: None)
            world.network.is_changed = False
            world.entered.clear()
            yield world

    def _forked(self, scenario: FaultScenario, world: FaultyWorld, faults: Faults) -> RunEnd:
        for path in world.scratch.iterdir():  # of the run before: files are not copied with the process
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            return forked(lambda: self._run(scenario, world, faults))
        except ForkError as err:
            return RunEnd(faults, wrong=f"{scenario.name!r} with {faults}: {err}")

    def _run(self, scenario: FaultScenario, world: FaultyWorld, faults: Faults) -> RunEnd:
        random.seed(repr((scenario.name, faults)))
        gc.disable()  # this process ends soon
        with same_ids("run"):
            return self._run_here(scenario, world, faults)

    def _run_here(self, scenario: FaultScenario, world: FaultyWorld, faults: Faults) -> RunEnd:
        world.network.begin(faults.fate(scenario.outage), faults.chance)
        world.network.follows = faults.kind is FaultKind.STALE
        outcome = scenario.act(world)
        struck = list(world.network.struck)
        world.struck = len(struck)
        world.network.follows = False
        world.network.begin(lambda request, number: None)
        sites = tuple(dict.fromkeys(call_site(request) for _, request in struck))
        try:
            operations = [(kind.value, one.operation) for kind, one in struck[:3]]
            left = self._judge(scenario, world, outcome, f"{scenario.name!r} with {faults}, {operations}")
        except FaultyRunError as err:
            return RunEnd(faults, sites, str(err))
        return RunEnd(faults, sites, left=left)

    def _judge(self, scenario: FaultScenario, world: FaultyWorld, outcome: Outcome, where: str) -> str | None:
        """Return the state that a run left, None if it changed nothing. Raises FaultyRunError if the run is wrong."""
        expected = self.expected(scenario)
        check_outcome(scenario, outcome, expected, where)
        if outcome.problem is not None:
            self._again(scenario, world, where)
        self._look_after(scenario, world, where)
        if not world.network.is_changed:
            return None  # it is what was prepared
        left = world.state()
        if (scenario.name, left) not in self._sound:
            found = _archived(scenario, world)
            if found != expected.archived:
                raise FaultyRunError(f"{where}: another archive than without faults: {found} not {expected.archived}")
            _scrub(world, where)
        return left

    def _look_after(self, scenario: FaultScenario, world: FaultyWorld, where: str) -> None:
        for act in scenario.after:
            found = act(world)
            if found.problem is not None:
                raise FaultyRunError(f"{where}: {found.problem}")

    def _again(self, scenario: FaultScenario, world: FaultyWorld, where: str) -> None:
        """Do it again, until it succeeds: what failed half-way is finished."""
        for _ in range(TRIES):
            outcome = scenario.act(world)
            if outcome.problem is None or (not scenario.again and outcome.is_typed):
                return
        raise FaultyRunError(f"{where}: afterwards, without faults: {outcome.problem}")


def check_outcome(scenario: FaultScenario, outcome: Outcome, expected: Expected, where: str) -> None:
    """Raise FaultyRunError if wrong bytes were shown, or an error is not typed or names no place."""
    if outcome.problem is None:
        if scenario.is_exact and outcome.shown != expected.shown:
            raise FaultyRunError(f"{where}: shows something else, and calls it success: {outcome.shown[:2000]!r}")
        return
    if not outcome.is_typed:
        raise FaultyRunError(f"{where}: {outcome.problem}")
    if not outcome.is_public and not any(place in outcome.problem for place in _PLACES):
        raise FaultyRunError(f"{where}: an error that does not name the place: {outcome.problem}")
    # What was shown before an error is a part of what there is.
    if scenario.is_exact and not expected.shown.startswith(outcome.shown):
        raise FaultyRunError(f"{where}: shows something else before its error: {outcome.shown[:2000]!r}")


def _archived(scenario: FaultScenario, world: FaultyWorld) -> str:
    head = world.table.head(ORDERS.incarnation)
    if head is not None and head.is_deleted:
        return "deleted"
    try:
        return world.digest(scenario.table)
    except ColdstreamError as err:
        return f"{type(err).__name__}: {err}"


def _scrub(world: FaultyWorld, where: str) -> None:
    outcome = _SCRUB(world)
    if outcome.problem is not None and "is deleted" not in outcome.problem:
        raise FaultyRunError(f"{where}: a scrub afterwards: {outcome.problem} {outcome.shown.decode()}")
