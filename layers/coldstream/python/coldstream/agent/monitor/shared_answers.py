"""Answers that all who wait for one share: however many ask at once, each of them waits for two to be made at most.

Else who asks for more than can be made, and waits for none of it, would have ever more threads wait for their turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class SharedAnswers(Generic[Made]):
    """The last answer of each kind, given to whoever asked before it was begun. `kinds` are kept, the newest ones."""

    def __init__(self, kinds: int = 4) -> None:
        self.lock = threading.Lock()
        self._kinds = kinds
        self._made: dict[str, tuple[float, Made]] = {}

    def get(self, kind: str, make: Callable[[], Made]) -> Made:
        """Return an answer that was begun after this call was; one is made at a time."""
        came = time.monotonic()
        with self.lock:
            begun, made = self._made.get(kind, (came, None))
            if made is not None and begun > came:
                return made
            begun, made = time.monotonic(), make()
            self._made.pop(kind, None)
            self._made[kind] = begun, made
            while len(self._made) > self._kinds:
                del self._made[next(iter(self._made))]
            return made
