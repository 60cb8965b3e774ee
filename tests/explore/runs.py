"""Runs of shipped code: an actor's work in a thread of its own, which stops at each request until it is answered.

The work is a function of the answers that it gets. So a run that was given up can be had again: by its answers.
"""

from __future__ import annotations

import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.explore.requests import Refusal, Request
from tests.explore.site import Ask, Site, Surroundings

PATIENCE_S = 60.0
"""How long an actor may act without coming to a request, or to its end. Each does so within milliseconds."""

RUNNING: ContextVar[Site | None] = ContextVar("site", default=None)
"""The site of the actor that runs: for names that shipped code makes up by itself."""

threading.stack_size(1 << 19)  # hundreds of runs wait at a time


class GivenUp(BaseException):
    """The run is not needed any more. No `Exception`: nothing that an actor catches may hide it."""


class Stuck(BaseException):
    """An actor neither asks nor ends, or does not do the same thing again for the same answers."""


class How(Enum):
    """How a piece of work ended."""

    DONE = "done"
    REFUSED = "refused"
    AGAIN = "again"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class End:
    """An actor's end: what it returned, or the error with which it ended, as a text."""

    how: How
    told: object = None


Work = Callable[[Site], Any]


@dataclass(frozen=True, slots=True)
class Role:
    """An actor: its name, what it does, and which errors are answers (REFUSED), or have it started again (AGAIN)."""

    name: str
    work: Work
    refusals: tuple[type[BaseException], ...]
    transient: tuple[type[BaseException], ...]
    alter: Callable[[Ask], Any] | None = None
    """Puts something between the actor and its stores; `finish` of that is called after its work."""

    def play(self, ask: Ask, surroundings: Surroundings) -> End:
        """Do all of it. Raises GivenUp."""
        altered = ask if self.alter is None else self.alter(ask)
        site = Site(altered, surroundings)
        RUNNING.set(site)
        try:
            said = self.work(site)
            if self.alter is not None:
                altered.finish()
            return End(How.DONE, said)
        except self.refusals as err:
            return End(How.REFUSED, f"{type(err).__name__}: {err}")
        except self.transient as err:
            return End(How.AGAIN, f"{type(err).__name__}: {err}")
        except Exception as err:  # noqa: BLE001  the explorer's to report
            return End(How.FAILED, f"{type(err).__name__}: {err}")


class Run:
    """One run, up to the first request that has no answer yet."""

    def __init__(self, role: Role, surroundings: Surroundings, earlier: Sequence[tuple[Request, object]] = ()) -> None:
        """Begin it. `earlier` are the requests that it has made, with their answers."""
        self._role, self._surroundings, self._earlier = role, surroundings, earlier
        self._at = 0
        self._go, self._back = allocate_lock(), allocate_lock()
        self._go.acquire()
        self._back.acquire()
        self._answer: object = None
        self._told: Request | End | BaseException | None = None
        self.is_over = False
        start_new_thread(self._run, ())

    def first(self) -> Request | End:
        """Return the first request without an answer, or the end."""
        return self._await()

    def go_on(self, answer: object) -> Request | End:
        """Give the answer, and return the next request, or the end."""
        self._answer = answer
        self._go.release()
        return self._await()

    def give_up(self) -> None:
        """Have the thread end."""
        if not self.is_over:
            self.is_over = True
            self._go.release()
            self._back.acquire(timeout=PATIENCE_S)

    def _await(self) -> Request | End:
        if not self._back.acquire(timeout=PATIENCE_S):
            raise Stuck(f"{self._role.name} neither asks nor ends for {PATIENCE_S} s")
        told = self._told
        if isinstance(told, Request):
            return told
        self.is_over = True
        if isinstance(told, End):
            return told
        assert told is not None
        raise told

    def _run(self) -> None:
        try:
            self._told = self._role.play(self._ask, self._surroundings)
        except GivenUp:
            self._told = None
        except BaseException as err:  # noqa: BLE001  raised where the run is awaited
            self._told = err
        self._back.release()

    def _ask(self, request: Request) -> object:
        if self.is_over:
            raise GivenUp
        if self._at < len(self._earlier):
            known, answer = self._earlier[self._at]
            self._at += 1
            if known != request:
                raise Stuck(f"{self._role.name} asks {request} where it asked {known} before, after the same answers")
        else:
            self._told = request
            self._back.release()
            self._go.acquire()
            if self.is_over:
                raise GivenUp
            answer = self._answer
        if isinstance(answer, Refusal):
            raise answer.make()
        return answer
