"""What each actor does next, by the answers that it got so far: a tree that grows as the explorer needs it.

A node stands for an actor after some answers. Its request is known, or its end. An answer leads to another node; only
if that was never had before, shipped code runs: the run that waits at the node goes on, or, if it has gone on with
another answer before, a new one is given all answers again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tests.explore.interning import Numbered
from tests.explore.requests import Request
from tests.explore.runs import End, Role, Run
from tests.explore.site import Surroundings

WAITING_RUNS = 400
"""Runs that wait for an answer, each in a thread. The one that waited longest is given up for one more."""


class Programs:
    """The trees of all actors. `request` and `ends` tell what comes at a node: a number of `requests`, or an end."""

    def __init__(self, roles: Sequence[Role], answers: Numbered, surroundings: Surroundings) -> None:
        self.requests = Numbered()
        self.request: list[int] = []
        self.ends: list[End | None] = []
        self.runs = self.steps = 0
        self._roles, self._answers, self._surroundings = roles, answers, surroundings
        self._actor: list[int] = []
        self._before: list[tuple[int, int]] = []
        self._after: list[dict[int, int]] = []
        self._waiting: OrderedDict[int, Run] = OrderedDict()
        self.roots = [self._begin(actor) for actor in range(len(roles))]

    def after(self, node: int, answer: int) -> int:
        """Return the node after an answer."""
        found = self._after[node].get(answer)
        if found is None:
            self.steps += 1
            run = self._waiting.pop(node, None)
            if run is None:
                run = self._run_to(node)
                run.first()
            told = run.go_on(self._answers.values[answer])
            found = self._after[node][answer] = self._new(self._actor[node], (node, answer), run, told)
        return found

    def close(self) -> None:
        """Give all runs up."""
        while self._waiting:
            self._waiting.popitem()[1].give_up()

    def _begin(self, actor: int) -> int:
        self.runs += 1
        run = Run(self._roles[actor], self._surroundings)
        return self._new(actor, (-1, -1), run, run.first())

    def _run_to(self, node: int) -> Run:
        """Run an actor again up to the request of a node."""
        self.runs += 1
        earlier: list[tuple[Request, object]] = []
        actor, at = self._actor[node], node
        while self._before[at][0] >= 0:
            at, answer = self._before[at]
            earlier.append((self._request(at), self._answers.values[answer]))
        return Run(self._roles[actor], self._surroundings, earlier[::-1])

    def _request(self, node: int) -> Request:
        return self.requests.values[self.request[node]]  # type: ignore[return-value]

    def _new(self, actor: int, before: tuple[int, int], run: Run, told: Request | End) -> int:
        node = len(self.request)
        is_end = isinstance(told, End)
        self.request.append(-1 if is_end else self.requests.number(told))
        self.ends.append(told if is_end else None)
        self._actor.append(actor)
        self._before.append(before)
        self._after.append({})
        if not is_end:
            self._waiting[node] = run
            if len(self._waiting) > WAITING_RUNS:
                self._waiting.popitem(last=False)[1].give_up()
        return node
