"""The guards of the shipped code, as a program finds them, and how each is taken away without changing that code.

- *conditions*: of each write of a transaction; If-None-Match and If-Match of requests to the bucket; the time that a
  deletion is signed with; and each `check_…` that a plan calls
- *orders*: two writes that one call of shipped code makes one after the other; taken away, the second comes first
- *re-reads*: what one call reads again; taken away, it takes its first answer once more

Those of direct streams and of jobs are in tests/explore/direct_guards.py, with two kinds more:

- *refusals*: each `if` that does nothing but raise (`refusals`)
- *states*: the revision, or the absence, that a write of a state item asks for (`state_writes`)

Of two guards either may suffice. Then neither has a schedule, and both together have one: `Guards` takes several away.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest

import coldstream
from coldstream.manifest.state import ManifestState
from tests.explore.actors import world
from tests.explore.altering import Remembering, Swapped, Unmatched, match_of
from tests.explore.call_sites import Asked, Listening
from tests.explore.loose import conditions, loosened
from tests.explore.machine import Machine
from tests.explore.refusals import without_refusal
from tests.explore.requests import Part, Request
from tests.explore.site import Ask
from tests.explore.state_writes import Loosely, let_loosely
from tests.explore.world import World

ROOT = Path(coldstream.__file__).parent
CHECKING = "manifest", "archive", "lifecycle", "garbage", "compact", "erase"

UNSEEN = {"create_upload", "put_part"}
"""Writes to the bucket that nobody sees: until its upload is completed, a part is in no listing of objects."""

OF_BYTES = {
    "erase.rewrite.check_erased": "reads an object back: of use if a store lies, which tests/faults has it do",
    "jobs.job.check_cursor": "looks at what a kind gives alone",
    "jobs.run.check_cursor": "looks at what a kind gives alone",
}
"""Checks that no schedule needs, and what does."""

BEFORE_PLANS = {"lifecycle.prefix.held", "store.holding.held", "streams.opening.check_there"}
"""What leaves something out, or refuses it, before a plan that refuses the same: not listed, and named in pairs."""


class GuardKind(StrEnum):
    """What a guard is."""

    CONDITION = "condition"
    MATCH = "match"
    CHECK = "check"
    ORDER = "order"
    REREAD = "re-read"
    REFUSAL = "refusal"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard: what it is, and the actors that have it, () for all."""

    kind: GuardKind
    name: str
    then: str = ""
    actors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}{f', then {self.then}' if self.then else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a guard from its text. Raises ValueError."""
        kind, _, name = text.partition(": ")
        name, _, then = name.partition(", then ")
        return cls(GuardKind(kind), name, then)

    @contextmanager
    def taken_away(self) -> Iterator[Callable[[Ask], Any] | None]:
        """Take it away; what is yielded is put between the actors and their stores."""
        with pytest.MonkeyPatch.context() as patch:
            match self.kind:
                case GuardKind.CONDITION:
                    patch.setattr(ManifestState, "after", loosened(self.name, ManifestState.after))
                    yield None
                case GuardKind.CHECK:
                    patch.setattr(f"coldstream.{self.name}", lambda *_, **__: None)
                    yield None
                case GuardKind.MATCH:
                    yield lambda ask: Unmatched(ask, self.name)
                case GuardKind.ORDER:
                    yield lambda ask: Swapped(ask, self.name, self.then)
                case GuardKind.REREAD:
                    yield lambda ask: Remembering(ask, self.name)
                case GuardKind.REFUSAL:
                    without_refusal(patch, self.name)
                    yield None
                case GuardKind.STATE:
                    let_loosely(patch)
                    yield lambda ask: Loosely(ask, self.name)


@dataclass(frozen=True, slots=True)
class Guards:
    """Guards that stand before each other: taken away together."""

    all: tuple[Guard, ...]

    def __str__(self) -> str:
        return " + ".join(map(str, self.all))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read guards from their text. Raises ValueError."""
        return cls(tuple(map(Guard.parse, text.split(" + "))))

    @contextmanager
    def taken_away(self) -> Iterator[Callable[[Ask], Any] | None]:
        """Take all of them away."""
        with ExitStack() as stack:
            altered = [alter for one in self.all if (alter := stack.enter_context(one.taken_away())) is not None]
            if len(altered) > 1 and any(one.kind is not GuardKind.STATE for one in self.all):
                raise ValueError(f"two of {self} are of requests")
            yield partial(_all_of, altered) if altered else None


def _all_of(altered: Sequence[Callable[[Ask], Any]], ask: Ask) -> Any:
    for alter in altered:
        ask = alter(ask)
    return ask


def heard(
    names: Iterable[str], before: tuple[str, ...] = (), make: Callable[[Sequence[str]], World] = world
) -> dict[str, list[Asked]]:
    """Return what each of some actors asks, after others have done what they do."""
    found: dict[str, list[Asked]] = {}
    for name in names:
        told: list[Asked] = []
        alone = make([*before, name])
        roles = [*alone.roles[:-1], replace(alone.roles[-1], alter=lambda ask, told=told: Listening(ask, told))]
        machine = Machine(replace(alone, roles=roles))
        state = machine.start
        for actor in range(len(roles)):
            while (step := next(machine.moves(state, actor), None)) is not None:
                state = step[1]
        machine.programs.close()
        found[name] = told
    return found


def all_guards(asked: dict[str, list[Asked]]) -> list[Guard]:
    """Return the guards, those of requests as some actors make them."""
    found: dict[GuardKind, dict[tuple[str, ...], set[str]]] = {kind: {} for kind in GuardKind}
    for name, told in asked.items():
        for one in told:
            if what := match_of(one.request):
                found[GuardKind.MATCH].setdefault((f"{what} of {one.name}",), set()).add(name)
        for pair in orders(told):
            found[GuardKind.ORDER].setdefault(pair, set()).add(name)
        for again in rereads(told):
            found[GuardKind.REREAD].setdefault((again,), set()).add(name)
    return [
        *(Guard(GuardKind.CONDITION, one) for one in conditions()),
        *(Guard(GuardKind.CHECK, one) for one in checks()),
        *(
            Guard(kind, *one, actors=tuple(sorted(who)))
            for kind in (GuardKind.MATCH, GuardKind.ORDER, GuardKind.REREAD)
            for one, who in sorted(found[kind].items())
        ),
    ]


def orders(told: Sequence[Asked]) -> Iterator[tuple[str, str]]:
    """Yield each two writes that one call of shipped code makes one after the other, and that may matter."""
    writes = [one for one in told if is_write(one.request) and one.place != "nowhere"]
    for one, other in pairwise(writes):
        if one.operation == other.operation and one.name != other.name:
            yield one.name, other.name


def is_write(request: Request) -> bool:
    """Tell whether a request may change what others can see: a deletion of no key does not, nor a part of an upload."""
    return request.writes and request.method not in UNSEEN and request.args != ((),)


def rereads(told: Sequence[Asked]) -> Iterator[str]:
    """Yield what one call of shipped code reads again, unless its transaction requires what it read.

    After a race that was lost, everything is read again. That is no guard: the transaction that follows is refused
    unless the head is the one that was read, whatever was read of the log after it.
    """
    known: set[tuple[int, Request]] = set()
    for number, one in enumerate(told):
        if one.request.writes or one.request.part > Part.BUCKET or one.place == "nowhere":
            continue
        at = one.operation, one.request
        if at in known and not _is_required(told, number):
            yield one.name
        known.add(at)


def _is_required(told: Sequence[Asked], number: int) -> bool:
    """Tell whether what comes of it is a transaction on the head that was read there or later, and nothing else.

    Objects and notes may be made before it: nobody sees an object before an entry names it, and a note says of which
    revision it is. A deletion is another thing.
    """
    one = told[number]
    if one.request.part is not Part.LOG:
        return False
    apply_at = next((at for at in range(number, len(told)) if told[at].request.method == "apply"), None)
    if apply_at is None or any("delete" in had.request.method for had in told[number:apply_at]):
        return False
    heads = [had for had in told[:apply_at] if had.request.method == "head" and had.operation == one.operation]
    if not heads or heads[-1].answer is None:
        return False
    change: Any = told[apply_at].request.args[0]
    return bool(change.head.revision == heads[-1].answer.revision + 1)


def checks(packages: Sequence[str] = CHECKING) -> list[str]:
    """Return the functions `check_…` that shipped code of a stream's life calls, each by the module that calls it.

    Those that look at nothing but a text that they are given are no guards: they refuse what somebody typed.
    """
    found = set()
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    name = node.func.id
                    if name.startswith("check_") and not _is_of_text(module, name):
                        found.add(f"{module}.{name}")
    return sorted(found - set(OF_BYTES))


def _is_of_text(module: str, name: str) -> bool:
    function = getattr(import_module(f"coldstream.{module}"), name)
    return all(one.annotation == "str" for one in signature(function).parameters.values())
