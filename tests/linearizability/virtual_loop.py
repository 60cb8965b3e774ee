"""An event loop with a simulated clock, on which processes live that may freeze and die.

Nothing sleeps: when nobody is ready, the clock moves to the next timer. A `Process` is a context variable, so that all
that is begun by one belongs to it: its tasks, its callbacks, its threads (`virtual_threads`). What of a frozen process
would run waits until it thaws; what of a dead one would run never does, until it is buried.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum, auto
from heapq import heappush
from typing import Any, TypeVar

from tests.linearizability.virtual_threads import Threads

Result = TypeVar("Result")

MAX_STEPS = 300_000
"""Callbacks of one loop. What needs more runs in circles; the longest plays make some ten thousand."""


class Stuck(Exception):  # noqa: N818  it is no error of the loop
    """Nobody is ready, and no timer is set; or somebody never stops."""


class Life(Enum):
    """What a process does."""

    RUNS = auto()
    FROZEN = auto()
    DEAD = auto()
    BURIED = auto()


class Process:
    """One process of the simulation."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.life = Life.RUNS
        self.has_been_frozen = False
        self._loop = loop
        self._waiting: list[asyncio.Handle] = []
        self._context = Context()
        self._context.run(_PROCESS.set, self)
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"<{self.name}, {self.life.name.lower()}>"

    def start(self, main: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin to run a coroutine as this process."""
        return self._loop.create_task(main, context=self._context)

    def holds_back(self, handle: asyncio.Handle) -> bool:
        """Keep what would run, if it must not."""
        if self.life in {Life.RUNS, Life.BURIED}:
            return False
        self._waiting.append(handle)
        return True

    def freeze(self) -> None:
        """Stop it as SIGSTOP does: its requests are on their way all the same."""
        if self.life is Life.RUNS:
            self.life = Life.FROZEN
            self.has_been_frozen = True

    def thaw(self) -> None:
        """Let it go on, with no idea that time has passed."""
        if self.life is Life.FROZEN:
            self.life = Life.RUNS
            self._go_on()

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.life = Life.DEAD

    def bury(self) -> None:
        """Unwind what is left of it: none of its requests goes anywhere."""
        self.life = Life.BURIED
        self._go_on()

    def own(self, task: asyncio.Task[Any]) -> None:
        """Take note of one of its tasks."""
        self._tasks.append(task)

    @property
    def unfinished(self) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if not task.done()]

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._loop.ready(waiting)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """Return the process that runs here, in the loop's own thread."""
    return _PROCESS.get()


class _Callback(asyncio.Handle):
    """A callback that runs only while its process does."""

    def _run(self) -> None:
        process = self._context.get(_PROCESS)  # type: ignore[attr-defined]  # asyncio's own
        if process is None or not process.holds_back(self):
            super()._run()  # type: ignore[misc]


class _Timer(asyncio.TimerHandle):
    """The same, at a time."""

    def _run(self) -> None:
        # Timers fire a moment early: who then asks whether it is time would wait again, and the clock stand still.
        loop: VirtualLoop = self._loop  # type: ignore[attr-defined]
        loop.now = max(loop.now, self.when())
        process = self._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is None or not process.holds_back(self):
            super()._run()  # type: ignore[misc]


class _Clock:
    """Stands where a loop waits for sockets: moves its clock instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if self._loop.steps > MAX_STEPS:
            raise Stuck(f"more than {MAX_STEPS} callbacks")
        if timeout is None:
            raise Stuck("nobody is ready, and no timer is set")
        if timeout > 0:
            self._loop.skip()
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `errors` is what went wrong where nobody looked, such as in a task that nobody awaits."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()
        self._selector = _Clock(self)
        self._clock_resolution = 1e-9
        self.steps = 0
        self.threads = Threads(self)
        self.processes: list[Process] = []
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        self.set_task_factory(_own_task)

    def process(self, name: str) -> Process:
        """Make a process."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    def time(self) -> float:
        """Return the simulated time, in seconds."""
        return self.now

    def skip(self) -> None:
        """Move the clock to the next timer."""
        self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]

    def ready(self, handles: list[asyncio.Handle]) -> None:
        """Have handles run that were held back."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def outside(self, delay_s: float, call: Callable[[], object]) -> None:
        """Make a call after a while as no process: what is on its way arrives, whatever becomes of its sender."""
        self.call_later(delay_s, call, context=Context())

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        """Make a call in the next turn, if its process runs then."""
        handle = _Callback(callback, args, self, copy_context() if context is None else context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        self.steps += 1
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:  # type: ignore[override]
        """Make a call at a time, if its process runs then."""
        timer = _Timer(when, callback, args, self, copy_context() if context is None else context)
        timer._scheduled = True  # type: ignore[attr-defined]
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function in a simulated thread, whatever the executor is."""
        outcome = self.create_future()
        self.threads.start(func, args, lambda result, error: _resolve(outcome, result, error))
        return outcome

    def bury(self) -> None:
        """Unwind all that is left, so that nothing outlives the play."""
        self.steps = 0
        for process in self.processes:
            process.bury()
        self.threads.bury()
        for _ in range(20):
            left = [task for process in self.processes for task in process.unfinished]
            if not left:
                return
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.wait(left, timeout=60))
            self.threads.bury()
        raise Stuck(f"tasks that cannot be cancelled: {left}")

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: nobody sleeps."""


def _own_task(loop: Any, coro: Any, *, context: Context | None = None) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    process = (context or copy_context()).get(_PROCESS)
    if process is not None:
        process.own(task)
    return task


def _resolve(outcome: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    elif isinstance(error, StopIteration):
        outcome.set_exception(RuntimeError(str(error)))
    else:
        outcome.set_exception(error)
