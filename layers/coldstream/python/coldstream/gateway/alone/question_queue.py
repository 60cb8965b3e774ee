"""Questions of one connection that wait for the archive: some at a time, the others in line.

While any is in line, nothing more is read from the client. So a flood costs what was read before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

Answering = Callable[[], Coroutine[Any, Any, None]]


class QuestionQueue:
    """Runs what answers. `pause` and `resume` have the client left unread, and read again."""

    def __init__(self, most: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._most = most
        self._pause = pause
        self._resume = resume
        self._tasks: set[asyncio.Task[None]] = set()
        self._line: deque[Answering] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    def ask(self, answering: Answering) -> None:
        """Have a question answered, in its turn."""
        if len(self._tasks) < self._most:
            self._begin(answering)
            return
        if not self._line:
            self._pause()
        self._line.append(answering)

    def close(self) -> None:
        """Answer nothing any more."""
        self._line.clear()
        for task in tuple(self._tasks):
            task.cancel()

    def _begin(self, answering: Answering) -> None:
        task = asyncio.create_task(answering())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._line:
            self._begin(self._line.popleft())
            if not self._line:
                self._resume()
