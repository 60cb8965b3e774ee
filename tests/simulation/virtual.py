"""Virtual time for the whole of a simulation: the loop, and every clock that shipped code reads.

`run_in_simulation(seed, main)` runs a coroutine on the loop of `tests/gateway/faults/virtual_time.py`. Requests that
shipped code gives to threads arrive after a while, and their answers come after another: between the two their sender
may be killed, and others act. Whoever has set `DRIFT_S` has a clock that is wrong by so much. All that a
`SimulatedProcess` begins ends with it, but for requests that are on their way.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

from coldstream.agent.losses import Losses
from coldstream.archive import staged_segment, upload
from coldstream.compact import blocks, merge, part_upload, run
from coldstream.errors import UnavailableError
from coldstream.flow import frame_sink
from coldstream.ingest import multipart
from coldstream.lifecycle import deletes
from coldstream.streams.wal import reader, seal
from coldstream.units import TimestampMs
from tests.gateway.faults.virtual_time import VirtualLoop
from tests.support.compacting import Inline

T = TypeVar("T")

THREADED = (upload, staged_segment, multipart, run, blocks, frame_sink, merge, part_upload, deletes, reader, seal)
"""Modules with threads of their own: what these do is done at once, so that a play follows from its seed."""

EPOCH_S = 1_763_700_000
LATENCY_S = (0.005, 0.2)

DRIFT_S: ContextVar[float] = ContextVar("drift", default=0.0)


class SimulatedProcess:
    """A process of its own, which dies as by SIGKILL."""

    def __init__(self) -> None:
        self.is_dead = False
        self.tasks: WeakKeyDictionary[asyncio.Task[Any], None] = WeakKeyDictionary()  # in the order of their start

    def context(self) -> Context:
        """Return what callbacks of this process run in."""
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin to run a coroutine as this process."""
        return asyncio.get_running_loop().create_task(main, context=self.context())

    async def kill(self) -> None:
        """End all that it has begun. None of it sends anything any more."""
        self.is_dead = True
        left = list(self.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


_PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("process", default=None)


class SimulationLoop(VirtualLoop):
    """The loop. `requests` draws how long they take."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = seed
        self.requests = random.Random(f"requests {seed}")

    def create_task(self, coro: Any, *, name: Any = None, context: Context | None = None) -> Any:
        task = super().create_task(coro, name=name, context=context)
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            process.tasks[task] = None
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        if executor is None:  # the host's own disk
            return super().run_in_executor(executor, func, *args)
        answer = self.create_future()
        process = _PROCESS.get()
        if process is not None and process.is_dead:
            answer.set_exception(UnavailableError("whoever asked is dead"))
            return answer

        def arrive() -> None:
            done = super(SimulationLoop, self).run_in_executor(executor, func, *args)
            self.call_later(self.requests.uniform(*LATENCY_S), _hand_over, done, answer)

        self.call_later(self.requests.uniform(*LATENCY_S), arrive)
        return answer

    def wall_s(self) -> float:
        """Return the true time of day."""
        return EPOCH_S + self.time()

    def wall_ms(self) -> TimestampMs:
        """Return it in milliseconds, as AWS says it."""
        return TimestampMs(round(self.wall_s() * 1000))


def run_in_simulation(seed: int, main: Coroutine[Any, Any, T]) -> T:
    """Run until `main` is done. Raises StandstillError."""
    loop = SimulationLoop(seed)
    before = random.getstate()
    random.seed(seed)  # jitter
    try:
        with _clocks_of(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(main)
    finally:
        random.setstate(before)


def _in_this_thread(here: Callable[..., Any], elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    thread = threading.get_ident()

    def either(*given: Any, **named: Any) -> Any:
        return (here if threading.get_ident() == thread else elsewhere)(*given, **named)

    return either


@contextmanager
def _clocks_of(loop: SimulationLoop) -> Iterator[None]:
    """Have all that reads a clock read the loop's, and what sleeps put it forward; so for ids.

    In this thread alone: what other tests of the process left running has the clocks and the ids that it had.
    """
    clocks: dict[str, Callable[..., Any]] = {
        "monotonic": loop.time,
        "monotonic_ns": lambda: round(loop.time() * 1e9),
        "time": lambda: loop.wall_s() + DRIFT_S.get(),
        "time_ns": lambda: round((loop.wall_s() + DRIFT_S.get()) * 1e9),
        "sleep": loop.jump,
    }
    chance = random.Random(f"ids {loop.seed}")
    with ExitStack() as patches:
        for module, name, here in (
            (os, "urandom", chance.randbytes),
            (random, "_urandom", chance.randbytes),
            *((time, name, clock) for name, clock in clocks.items()),
        ):
            patches.enter_context(patch.object(module, name, _in_this_thread(here, getattr(module, name))))
        for module in THREADED:
            patches.enter_context(patch.object(module, "ThreadPoolExecutor", Inline))
        # A default that was taken when the class was made.
        patches.enter_context(patch.dict(Losses.__init__.__kwdefaults__, clock=loop.time))
        yield


def _hand_over(done: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
    error = done.exception()
    if answer.done():  # whoever asked is gone
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
