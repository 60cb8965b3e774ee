"""Questions of one connection that wait for the archive: some at a time, the others in line.

While any is in line, nothing more is read from the client. So a flood costs what was read before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

Answering = Callable[[], Coroutine[Any, Any, None]]


class QuestionQueue:
    """Runs what answers. `pause` and `resume` have the client left unread, and read again."""

    def __init__(self, most: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._most = most
        self._pause = pause
        self._resume = resume
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self._line: deque[tuple[Answering, bool]] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    def ask(self, answering: Answering, *, outlives: bool = False) -> None:
        """Have a question answered, in its turn. One that `outlives` the connection is dealt with all the same."""
        if len(self._tasks) < self._most:
            self._begin(answering, outlives=outlives)
            return
        if not self._line:
            self._pause()
        self._line.append((answering, outlives))

    def close(self) -> None:
        """Answer nothing any more, but what outlives it; of that, as many more as are answered at a time."""
        self._line = deque(islice((one for one in self._line if one[1]), self._most))
        for task, outlives in tuple(self._tasks.items()):
            if not outlives:
                task.cancel()

    def _begin(self, answering: Answering, *, outlives: bool) -> None:
        task = asyncio.create_task(answering())
        self._tasks[task] = outlives
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if self._line:
            answering, outlives = self._line.popleft()
            self._begin(answering, outlives=outlives)
            if not self._line:
                self._resume()
