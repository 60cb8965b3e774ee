"""Threads of a simulation: real ones, of which one at a time runs, and only when the loop waits for it.

A thread hands the baton back where it would block: at a request, in `time.sleep`, at a future. The loop hands it out
again when the simulated time has come. So the same seed gives the same history, with the shipped code in its threads.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

from coldstream.streams import wals
from coldstream.streams.wal import reader, shared_reads

if TYPE_CHECKING:
    from tests.linearizability.virtual_loop import VirtualLoop

Done = Callable[[Any, BaseException | None], None]

PATIENCE_S = 120.0
"""Real time that a thread may run without handing the baton back."""


class Killed(BaseException):
    """The process of this thread is dead. No `Exception`: nothing that the code catches may hide it."""


class VirtualThread:
    """One call, in a thread of its own, of the process that made it."""

    def __init__(self, threads: Threads, call: Callable[[], Any], done: Done) -> None:
        self._threads = threads
        self._call = call
        self._done = done
        self._worker: _Worker | None = None
        self.context: Context = copy_context()
        self.is_killed = False

    def run(self) -> None:
        """Do the call; in its worker's thread."""
        try:
            result, error = (None, Killed()) if self.is_killed else (self._call(), None)
        except BaseException as err:  # noqa: BLE001  as an executor does
            result, error = None, err
        self._threads.finished(self, result, error, self._done)

    def turn(self) -> None:
        """Let it run until it hands the baton back; in the loop's thread. Nothing happens if it is at its end."""
        if not self._threads.has(self):
            return
        if self._worker is None:
            self._worker = self._threads.worker()
        self._worker.turn(self)

    def wait(self) -> None:
        """Hand the baton back, and wait for it; in its own thread."""
        assert self._worker is not None
        self._worker.wait()
        if self.is_killed:
            raise Killed

    def go_on(self) -> None:
        """Have it go on, if and when its process runs; in any thread."""
        self._threads.loop.call_soon(self.turn, context=self.context)


class _Worker:
    """A real thread, which is used again."""

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._job: VirtualThread | None = None
        self.is_free = True
        threading.Thread(target=self._work, daemon=True).start()

    def turn(self, job: VirtualThread) -> None:
        self._job = job
        self._go.release()
        if not self._back.acquire(timeout=PATIENCE_S):
            raise RuntimeError("a thread of the simulation blocks where it should not")

    def wait(self) -> None:
        self._back.release()
        self._go.acquire()

    def _work(self) -> None:
        while True:
            self._go.acquire()
            assert self._job is not None
            _LOCAL.current = self._job
            self._job.run()
            _LOCAL.current = None
            self.is_free = True
            self._back.release()


_LOCAL = threading.local()
_SLEEP = time.sleep
_WORKERS: list[_Worker] = []


def current_thread() -> VirtualThread | None:
    """Return the simulated thread that runs here; None in the loop's."""
    return getattr(_LOCAL, "current", None)


class Threads:
    """All simulated threads of a loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self._unfinished: dict[VirtualThread, None] = {}

    def start(self, call: Callable[..., Any], arguments: tuple[Any, ...], done: Done) -> None:
        """Start a thread; `done` is told its result in the loop, unless its process is dead by then."""
        current = current_thread()
        if current is None:
            thread = VirtualThread(self, lambda: call(*arguments), done)
        else:
            thread = current.context.copy().run(VirtualThread, self, lambda: call(*arguments), done)
        self._unfinished[thread] = None
        thread.go_on()

    def worker(self) -> _Worker:
        """Return a free worker."""
        found = next((one for one in _WORKERS if one.is_free), None)
        if found is None:
            found = _Worker()
            _WORKERS.append(found)
        found.is_free = False
        return found

    def has(self, thread: VirtualThread) -> bool:
        """Tell whether a thread is not at its end."""
        return thread in self._unfinished

    def finished(self, thread: VirtualThread, result: object, error: BaseException | None, done: Done) -> None:
        del self._unfinished[thread]
        self.loop.call_soon(done, result, error, context=thread.context)

    def sleep(self, seconds: float) -> None:
        """Wait in simulated time."""
        thread = current_thread()
        if thread is None and threading.current_thread() is not threading.main_thread():
            _SLEEP(seconds)  # a thread of another library, which lives as long as this process
            return
        if thread is None:
            raise RuntimeError("the event loop's thread sleeps")
        if not thread.is_killed:
            self.loop.call_later(seconds, thread.turn, context=thread.context)
            thread.wait()

    def bury(self) -> None:
        """Unwind every thread that is left."""
        while self._unfinished:
            thread = next(iter(self._unfinished))
            thread.is_killed = True
            thread.turn()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Have the shipped code use this clock and these threads."""

        def executor(*_: object, **__: object) -> VirtualExecutor:
            return VirtualExecutor(self)

        users = [
            module
            for name, module in sys.modules.items()
            if name.startswith("coldstream.") and getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor
        ]
        patches = [patch.object(module, "ThreadPoolExecutor", executor) for module in users]
        patches += [
            patch.object(wals, "threading", VirtualThreading),
            patch.object(reader, "threading", VirtualThreading),
        ]
        patches += [patch.object(shared_reads, "threading", VirtualThreading)]
        patches += [patch.object(shared_reads, "Future", VirtualFuture)]
        patches += [patch.object(time, "sleep", self.sleep), patch.object(time, "monotonic", self.loop.time)]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in reversed(patches):
                one.stop()


class VirtualFuture(Future[Any]):
    """A future for which a simulated thread waits by handing the baton back."""

    def result(self, timeout: float | None = None) -> Any:
        self._wait()
        return super().result(0 if current_thread() else timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait()
        return super().exception(0 if current_thread() else timeout)

    def _wait(self) -> None:
        thread = current_thread()
        if thread is not None and not self.done():
            if thread.is_killed:
                raise Killed
            self.add_done_callback(lambda _: thread.go_on())
            thread.wait()


class VirtualSemaphore:
    """A semaphore for which a simulated thread waits by handing the baton back; those that wait go on in order."""

    def __init__(self, value: int = 1) -> None:
        self._left = value
        self._waiting: deque[VirtualThread] = deque()

    def __enter__(self) -> Self:
        thread = current_thread()
        while self._left == 0:
            if thread is None:
                raise RuntimeError("the event loop's thread waits for a lock")
            self._waiting.append(thread)
            try:
                thread.wait()
            finally:
                if thread in self._waiting:
                    self._waiting.remove(thread)
        self._left -= 1
        return self

    def __exit__(self, *_: object) -> None:
        self._left += 1
        if self._waiting:
            self._waiting.popleft().go_on()


class VirtualThreading:
    """What stands where the module `threading` would, for code that holds a lock over requests."""

    Lock = VirtualSemaphore
    Semaphore = VirtualSemaphore


class VirtualExecutor(Executor):
    """Stands where a ThreadPoolExecutor would; it has as many threads as there are calls."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._calls: deque[VirtualFuture] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call."""
        future = VirtualFuture()

        def run() -> Any:
            if not future.set_running_or_notify_cancel():
                return None
            return fn(*args, **kwargs)

        def done(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if not future.running():  # killed before it began
                future.set_running_or_notify_cancel()
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self._calls.append(future)
        self._threads.start(run, (), done)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  as in Executor
        """Wait for all calls, in a thread; the loop does not wait."""
        calls, self._calls = self._calls, deque()
        for one in calls:
            if cancel_futures:
                one.cancel()
        thread = current_thread()
        if wait and thread is not None and not thread.is_killed:
            for one in calls:
                if not one.cancelled():
                    one.exception()
