"""Answers that are made once for all who wait for them.

However many callers ask at once, none waits for more than two answers to be made. Without that, a client that asks
faster than answers are made, and waits for none of them, would pile up threads that each make one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class SharedAnswers(Generic[Answer]):
    """Keeps the last answer of each kind, for the newest `kinds`, for callers that asked before it was begun."""

    def __init__(self, kinds: int = 4) -> None:
        self.lock = threading.Lock()
        self._kinds = kinds
        self._answers: dict[str, tuple[float, Answer]] = {}  # with the time at which each was begun; the oldest first

    def get(self, kind: str, make: Callable[[], Answer]) -> Answer:
        """Return an answer that was begun after this call; one is made at a time."""
        called_at = time.monotonic()
        with self.lock:
            # Whoever waited for the lock may find an answer that was begun after its own call, so as good as its own.
            begun_at, answer = self._answers.get(kind, (called_at, None))
            if answer is not None and begun_at > called_at:
                return answer
            begun_at, answer = time.monotonic(), make()
            # Out and in again, so that it becomes the newest: a dict keeps the place of a key that is only replaced.
            self._answers.pop(kind, None)
            self._answers[kind] = begun_at, answer
            while len(self._answers) > self._kinds:  # kinds are content types, which clients choose: bound them
                del self._answers[next(iter(self._answers))]
            return answer
