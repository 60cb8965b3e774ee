"""Several actors at one archive, one of them at a time: a schedule says who makes how many calls, and who dies where.

    upload=7 sweep=3 upload sweep       7 calls of the upload, 3 of the sweep, then each to its end
    upload=7! sweep upload              the upload dies after 7 calls, before and after everything else there is;
                                        the sweep runs; the upload is started again, as its queue does
    upload=7? upload                    the 7th call has its effect, and its answer is lost

A call is one request to the table or the bucket. It takes effect at once, so what matters is only who makes the next.
Actors are threads that hand on a baton: the same schedule gives the same history, and its text replays a failure.
"""

from __future__ import annotations

import sys
import threading
import traceback
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, Self

MAX_REFUSALS = 6
"""How often an actor is started again that was refused for now. One that a schedule kills is, each time."""

PATIENCE_S = 60.0
"""How long an actor may act without coming to a call, or to its end. Each does so within milliseconds."""

MAX_CALLS = 5000
"""The calls that one actor may make, all its attempts together; the longest make some hundred."""


class Stuck(BaseException):
    """Somebody neither makes a call nor ends, or never stops making calls.

    No `Exception`: nothing that an actor catches may hide it.
    """


class Killed(BaseException):
    """A process ended here; nothing more of it happens."""


class Fate(StrEnum):
    """What befalls an actor after the last call of a step."""

    WAITS = ""
    DIES = "!"
    HEARS_NOTHING = "?"


@dataclass(frozen=True, slots=True)
class Step:
    """So many calls of one actor, None for all that it has left."""

    actor: str
    calls: int | None = None
    fate: Fate = Fate.WAITS

    def __str__(self) -> str:
        return self.actor if self.calls is None else f"{self.actor}={self.calls}{self.fate}"

    @classmethod
    def parse(cls, text: str) -> Self:
        actor, _, calls = text.partition("=")
        fate = Fate(calls[-1]) if calls and not calls[-1].isdigit() else Fate.WAITS
        return cls(actor, int(calls.rstrip("!?")) if calls else None, fate)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps, one after the other. What is left afterwards runs to its end, in the order of the actors."""

    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.steps))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(tuple(map(Step.parse, text.split())))


ANY_KEY = "*"
EVERYTHING = "**"
TABLE = "table"
READS = frozenset({"BatchGetItem", "GetItem", "Query", "TransactGetItems", "GetObject", "HeadObject", "ListObjectsV2"})


@dataclass(frozen=True, slots=True)
class Call:
    """A request that an actor made: the name of the AWS call, and what it is about.

    `about` is the table, the key of an object, any key for a listing, None for what nobody changes.
    """

    name: str
    about: str | None

    @property
    def writes(self) -> bool:
        return self.name not in READS

    def conflicts(self, others: Iterable[Call]) -> bool:
        """Tell whether it may make a difference if this call comes after all of the others, and not before."""
        return any((self.writes or other.writes) and _meet(self.about, other.about) for other in others)


def _meet(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    if EVERYTHING in {one, other}:
        return True
    if (one == TABLE) != (other == TABLE):
        return False
    return one == other or ANY_KEY in {one, other}


class Actor:
    """One process: what it does, and what it did so far."""

    def __init__(self, name: str, work: Callable[[], None], transient: tuple[type[BaseException], ...]) -> None:
        self.name = name
        self.calls: list[Call] = []
        self.is_done = False
        self.refusals = 0
        self.left: int | None = 0
        self.is_dead = False
        self.loses_answer = False
        self.last_error: BaseException | None = None
        self._work = work
        self._transient = transient
        self._go = threading.Semaphore(0)
        self.is_running = False
        self.thread: int | None = None
        self.is_lost = False

    def resume(self, stage: Stage) -> None:
        """Hand the baton to it."""
        if self.is_running:
            self._go.release()
            return
        self.is_running, self.is_dead = True, False
        # Not a `Thread`: that waits until it is told that it began, which takes longer than all that most actors do.
        start_new_thread(self._run, (stage,))

    def wait(self) -> None:
        self._go.acquire()

    def _run(self, stage: Stage) -> None:
        self.thread = threading.get_ident()
        try:
            self._work()
            self.is_done = True
        except Killed:
            pass
        except self._transient as err:
            self.refusals += 1
            self.last_error = err
        except BaseException as err:  # noqa: BLE001  the stage's to raise
            stage.error = stage.error or err
        self.is_running = False
        stage.take_back()


class Stage:
    """Lets one actor act at a time. `on_idle` is called each time before the next call is made, and at the end."""

    def __init__(self, on_idle: Callable[[], None] = lambda: None, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self.error: BaseException | None = None
        self.acting: Actor | None = None
        self.actors: dict[str, Actor] = {}
        self._on_idle = on_idle
        self._back = threading.Semaphore(0)
        self._unattended = 0

    def add(self, name: str, work: Callable[[], None], transient: tuple[type[BaseException], ...]) -> None:
        self.actors[name] = Actor(name, work, transient)

    def play(self, schedule: Schedule) -> None:
        """Do as it says, then let each actor that is not done go on to its end, started again if it died.

        It ends, whatever the actors do: raises Stuck if one holds the baton for PATIENCE_S, or makes MAX_CALLS calls.
        """
        try:
            self._play(schedule)
        finally:
            self._dismiss()

    def _play(self, schedule: Schedule) -> None:
        for step in schedule.steps:
            self._do(self.actors[step.actor], step)
        for actor in self.actors.values():
            while not actor.is_done:
                if actor.refusals >= MAX_REFUSALS and not actor.is_running:
                    raise AssertionError(f"{actor.name} never ends") from actor.last_error
                self._advance(actor, None)

    def call(self, name: str, about: str | None) -> None:
        """Stand before a call of the acting actor; others may come first. Raises Killed if it died."""
        actor = self.acting
        if actor is None:
            self._unattended += 1
            if self._unattended > MAX_CALLS:
                raise Stuck(f"calls without end, at last {name} {about}")
            return
        if actor.thread != threading.get_ident():
            # Two threads of one actor would hand on one baton: then nobody has it, and all wait.
            raise Stuck(f"{actor.name} makes {name} in a thread of its own: lifecycle_play.POOLS lacks a module")
        if actor.is_dead:
            raise Killed
        self._idle()
        if len(actor.calls) >= MAX_CALLS:
            raise Stuck(f"{actor.name} makes calls without end, at last {name} {about}")
        if actor.left == 0:
            self.acting = None
            self._back.release()
            actor.wait()
            if actor.is_dead:
                raise Killed
        if actor.left is not None:
            actor.left -= 1
        actor.calls.append(Call(name, about))

    def is_answer_lost(self) -> bool:
        """Tell whether the answer to the call that is being made is lost."""
        actor = self.acting
        if actor is None or not actor.loses_answer or actor.left != 0:
            return False
        actor.loses_answer = False
        return True

    def take_back(self) -> None:
        self.acting = None
        self._back.release()

    def _do(self, actor: Actor, step: Step) -> None:
        if actor.is_done:
            return
        if step.calls != 0 or not actor.is_running:
            actor.loses_answer = step.fate is Fate.HEARS_NOTHING
            self._advance(actor, step.calls)
        if step.fate is Fate.DIES and actor.is_running:
            actor.is_dead = True
            self._advance(actor, 0)

    def _advance(self, actor: Actor, calls: int | None) -> None:
        actor.left = calls
        self.acting = actor
        actor.resume(self)
        self._await_baton(actor)
        self.acting = None
        self._idle()

    def _await_baton(self, actor: Actor) -> None:
        if self._back.acquire(timeout=self._patience_s):
            return
        last = actor.calls[-1] if actor.calls else None
        frame = sys._current_frames().get(actor.thread or 0)
        where = "" if frame is None else "".join(traceback.format_stack(frame)[-3:])
        actor.is_lost = True
        raise Stuck(f"{actor.name} neither calls nor ends, {self._patience_s} s after {last}\n{where}")

    def _dismiss(self) -> None:
        """End the actors that still wait, one after the other: else their threads would wait for ever."""
        self._abandon()
        for actor in self.actors.values():
            while actor.is_running and not actor.is_lost:
                self.acting = actor
                actor.resume(self)
                if not self._back.acquire(timeout=self._patience_s):
                    actor.is_lost = True
        self.acting = None

    def _idle(self) -> None:
        """Look at the state that was reached. What is wrong ends the whole play, whatever the actor catches."""
        if self.error is None:
            try:
                self._on_idle()
            except AssertionError as err:
                self.error = err
        if self.error is not None:
            self._abandon()
            raise self.error

    def _abandon(self) -> None:
        for actor in self.actors.values():
            actor.is_dead = True


class Played(Protocol):
    """What a schedule came to: the calls of each actor, in order."""

    def __call__(self, schedule: Schedule) -> dict[str, list[Call]]:
        """Play a schedule in a world of its own. Raises AssertionError if something went wrong in it."""
        ...


def interleavings(first: str, second: str, play: Played, *, switches: int = 2, kills: bool = True) -> int:
    """Play the interleavings of two actors of which `first` begins; return how many schedules these were.

    Iterative context bounding: with one switch the second actor runs as a whole between two calls of the first; with
    two it stops there, and the first goes on to its end; with three the second goes on, and the first comes again. With
    `kills` either is also killed where it stops, and started again later.

    Left out is only what makes no difference. A switch right after a call that conflicts with nothing that the other
    does then is as one right before it; and who is killed, is killed after a write.
    """
    alone = play(Schedule((Step(first),)))[first]
    played = 1
    following: list[Call] | None = None
    for count in range(len(alone), -1, -1):
        if kills and count and alone[count - 1].writes:
            play(Schedule((Step(first, count, Fate.DIES), Step(second), Step(first))))
            played += 1
        if following is not None and not alone[count].conflicts(following):
            continue
        begin = Step(first, count)
        following = play(Schedule((begin, Step(second), Step(first))))[second]
        played += 1
        if switches > 1:
            played += _with_second_stopping(begin, Step(second), following, play, switches=switches, kills=kills)
    return played


def _with_second_stopping(
    begin: Step, second: Step, alone: Sequence[Call], play: Played, *, switches: int, kills: bool
) -> int:
    played = 0
    rest: list[Call] | None = None
    first = Step(begin.actor)
    for stop in range(len(alone) - 1, 0, -1):
        if kills and alone[stop - 1].writes:
            play(Schedule((begin, replace(second, calls=stop, fate=Fate.DIES), first, second)))
            played += 1
        if rest is not None and not alone[stop].conflicts(rest):
            continue
        stopping = replace(second, calls=stop)
        rest = play(Schedule((begin, stopping, first, second)))[first.actor][begin.calls :]
        played += 1
        for again in range(len(rest) - 1, 0, -1) if switches > 2 else ():
            play(Schedule((begin, stopping, replace(first, calls=again), second, first)))
            played += 1
    return played
