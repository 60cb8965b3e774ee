"""The guards of the shipped code, as a program finds them, and how each is taken away without changing that code.

- *conditions*: of each write of a transaction; If-None-Match and If-Match of requests to the bucket; the time that a
  deletion is signed with; and each `check_…` that a plan calls
- *orders*: two writes that an actor makes one after the other; taken away, the second comes first
- *re-reads*: what an actor reads again; taken away, it takes its first answer once more
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import coldstream
from coldstream.manifest.state import ManifestState
from coldstream.store.object_values import DeleteReport
from tests.explore.actors import world
from tests.explore.call_sites import Asked, Listening, place
from tests.explore.loose import conditions, loosened
from tests.explore.machine import Machine
from tests.explore.requests import Part, Request
from tests.explore.site import Ask

ROOT = Path(coldstream.__file__).parent
CHECKING = "manifest", "archive", "lifecycle", "garbage", "compact", "erase"


class GuardKind(StrEnum):
    """What a guard is."""

    CONDITION = "condition"
    MATCH = "match"
    CHECK = "check"
    ORDER = "order"
    REREAD = "re-read"


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard: what it is, and the actors that have it, () for all."""

    kind: GuardKind
    name: str
    then: str = ""
    actors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}{f', then {self.then}' if self.then else ''}"

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
                    yield lambda ask: _Unmatched(ask, self.name)
                case GuardKind.ORDER:
                    yield lambda ask: _Swapped(ask, self.name, self.then)
                case GuardKind.REREAD:
                    yield lambda ask: _Remembering(ask, self.name)


class _Unmatched:
    """Leaves the condition of a request to the bucket out."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask, self._name = ask, name

    def __call__(self, request: Request) -> Any:
        what = _match_of(request)
        if what and f"{what} of {Asked(place(), request).name}" == self._name:
            options = tuple((name, None if name in {"if_match", "signed_at"} else one) for name, one in request.options)
            method = {"put_new": "put_over", "complete_upload": "complete_over"}.get(request.method, request.method)
            request = replace(request, method=method, options=options)
        return self._ask(request)

    def finish(self) -> None:
        """Do what is left."""


class _Swapped:
    """Has one write come after the next one."""

    def __init__(self, ask: Ask, first: str, second: str) -> None:
        self._ask, self._first, self._second = ask, first, second
        self._held: Request | None = None

    def __call__(self, request: Request) -> Any:
        if not request.writes:
            return self._ask(request)
        name = Asked(place(), request).name
        if self._held is None:
            if name != self._first:
                return self._ask(request)
            self._held = request
            return foreseen(request)
        held, self._held = self._held, None
        if name != self._second:
            self._ask(held)
            return self(request)
        answer = self._ask(request)
        self._ask(held)
        return answer

    def finish(self) -> None:
        """Do what is left."""
        if self._held is not None:
            held, self._held = self._held, None
            self._ask(held)


class _Remembering:
    """Answers what was read before as it was then."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask, self._name = ask, name
        self._known: dict[Request, Any] = {}

    def __call__(self, request: Request) -> Any:
        if request.writes or request.part > Part.BUCKET:
            return self._ask(request)
        if request in self._known and Asked(place(), request).name == self._name:
            return self._known[request]
        answer = self._known[request] = self._ask(request)
        return answer

    def finish(self) -> None:
        """Do what is left."""


def foreseen(request: Request) -> Any:
    """Return the answer that a write has as a rule."""
    return DeleteReport(request.args[0]) if request.method == "delete_many" else None  # type: ignore[arg-type]


def _match_of(request: Request) -> str:
    """Return the condition of a request to the bucket, "" if it has none."""
    if request.method in {"put_new", "complete_upload"}:
        return "If-None-Match"
    given = [name for name, value in request.options if name in {"if_match", "signed_at"} and value is not None]
    return {"if_match": "If-Match", "signed_at": "the signature's time"}[given[0]] if given else ""


def heard(names: Iterable[str], before: tuple[str, ...] = ()) -> dict[str, list[Asked]]:
    """Return what each of some actors asks, after others have done what they do."""
    found: dict[str, list[Asked]] = {}
    for name in names:
        told: list[Asked] = []
        alone = world([*before, name])
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
    matches: dict[str, set[str]] = {}
    orders: dict[tuple[str, str], set[str]] = {}
    rereads: dict[str, set[str]] = {}
    for name, told in asked.items():
        for one in told:
            if what := _match_of(one.request):
                matches.setdefault(f"{what} of {one.name}", set()).add(name)
        writes = [one for one in told if one.request.writes]
        for one, other in pairwise(writes):
            if one.name != other.name and one.request.method not in {"create_upload", "put_part", "bind_cluster"}:
                orders.setdefault((one.name, other.name), set()).add(name)
        known: set[Request] = set()
        for one in told:
            if not one.request.writes and one.request.part <= Part.BUCKET:
                if one.request in known:
                    rereads.setdefault(one.name, set()).add(name)
                known.add(one.request)
    return [
        *(Guard(GuardKind.CONDITION, one) for one in conditions()),
        *(Guard(GuardKind.CHECK, one) for one in checks()),
        *(Guard(GuardKind.MATCH, one, actors=tuple(sorted(who))) for one, who in sorted(matches.items())),
        *(Guard(GuardKind.ORDER, *one, actors=tuple(sorted(who))) for one, who in sorted(orders.items())),
        *(Guard(GuardKind.REREAD, one, actors=tuple(sorted(who))) for one, who in sorted(rereads.items())),
    ]


def checks() -> list[str]:
    """Return the functions `check_…` that shipped code of a stream's life calls, each by the module that calls it."""
    found = set()
    for package in CHECKING:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text())
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    name = node.func.id
                    if name.startswith("check_"):
                        found.add(f"{module}.{name}")
    return sorted(found)
