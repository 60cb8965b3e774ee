"""A store between its user and another one, in which single calls are held up, or fail, at a test's word.

objects = Interposed(MemoryObjects())
with objects.held("put_new") as call:
    task = asyncio.create_task(stream.append([b"a"]))
    await call.entered()       # its thread waits now
    ...
await task
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 60.0
"""How long a test waits for what must come; nothing depends on it that succeeds."""


class HeldCall:
    """Calls of one method, which wait in their threads."""

    def __init__(self) -> None:
        self._entered = threading.Event()
        self._released = threading.Event()

    async def entered(self) -> None:
        """Wait until somebody calls it."""
        if not await asyncio.to_thread(self._entered.wait, PATIENCE_S):
            raise TimeoutError("nobody made the call")

    def release(self) -> None:
        """Let all go on, also who comes later."""
        self._released.set()

    def pass_by(self) -> None:
        """Wait; in the caller's thread."""
        self._entered.set()
        if not self._released.wait(PATIENCE_S):
            raise TimeoutError("nobody released the call")


class Interposed:
    """Everything that `target` does, but for what is held, or fails."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self._held: dict[str, tuple[HeldCall, Callable[..., bool]]] = {}
        self._failing: dict[str, Callable[[], BaseException | None]] = {}

    @contextmanager
    def held(self, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> Iterator[HeldCall]:
        """Hold up the calls of a method whose arguments are such, until `release`, or the end of the block."""
        call = HeldCall()
        self._held[name] = call, when
        try:
            yield call
        finally:
            del self._held[name]
            call.release()

    @contextmanager
    def failing(self, name: str, error: Callable[[], BaseException | None]) -> Iterator[None]:
        """Have the calls of a method raise what `error` returns, before they do anything; None lets one pass."""
        self._failing[name] = error
        try:
            yield
        finally:
            del self._failing[name]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            held, when = self._held.get(name, (None, None))
            if held is not None and when is not None and when(*args, **options):
                held.pass_by()
            if (failing := self._failing.get(name)) is not None and (error := failing()) is not None:
                raise error
            return found(*args, **options)

        return call
