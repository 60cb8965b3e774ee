"""Whoever lives in a process of its own, which is killed and starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.virtual import SimulatedProcess


class Restartable:
    """One of them. `main` is what its process does; nothing ends that but an error, or its death."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._process: SimulatedProcess | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, if it is not there."""
        if self._task is None:
            self._process = SimulatedProcess()
            self._task = self._process.start(self._main())

    async def kill(self) -> None:
        """Die."""
        process, self._task = self._process, None
        if process is not None:
            await process.kill()

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()
