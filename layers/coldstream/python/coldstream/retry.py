"""Retries with jitter: random, growing delays.

`retrying` repeats one call. `Backoff` paces a loop that has no single call to repeat: one that polls, or one that
reconnects for as long as its process runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

Retryable = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""The errors after which a call is repeated: one type, several, or those that a predicate accepts."""


class Retrying:
    """Repeats calls, each at most `attempts` times in all."""

    def __init__(
        self,
        on: Retryable,
        attempts: int,
        first_delay_s: float,
        max_delay_s: float,
        sleep: Callable[[float], object] | None,
    ) -> None:
        self._on = on
        self._attempts = attempts
        self._first_delay_s = first_delay_s
        self._max_delay_s = max_delay_s
        self._sleep = sleep

    def __call__(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Make a call, and again after each of the errors, up to the last attempt, whose error is raised."""
        for attempt in range(1, self._attempts):
            try:
                return call(*args, **kwargs)
            except Exception as err:
                if not self._is_retryable(err):
                    raise
            bound_s = min(self._max_delay_s, self._first_delay_s * 2.0 ** (attempt - 1))
            (self._sleep or time.sleep)(random.uniform(0, bound_s))  # noqa: S311  jitter, not a secret
        return call(*args, **kwargs)

    def _is_retryable(self, err: Exception) -> bool:
        return isinstance(err, self._on) if isinstance(self._on, type | tuple) else self._on(err)


def retrying(
    on: Retryable,
    *,
    attempts: int,
    first_delay_s: float,
    max_delay_s: float,
    sleep: Callable[[float], object] | None = None,
) -> Retrying:
    """Return a caller that repeats a function, at most `attempts` times in all, while it raises an error of `on`.

    It raises the last error. The delay before each further attempt is random, between 0 and a bound that starts at
    `first_delay_s` and doubles up to `max_delay_s`: writers that collided once must not collide again in step. `sleep`
    takes the place of `time.sleep` for a caller who may be woken.
    """
    return Retrying(on, attempts, first_delay_s, max_delay_s, sleep)


@dataclass(slots=True)
class Backoff:
    """The delays of a loop, in seconds: each between half of a bound and all of it.

    The bound starts at `first_s` and grows by `factor` with each delay, up to `max_s`.
    """

    first_s: float
    max_s: float
    factor: float = 2.0
    _bound_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._bound_s = self.first_s

    def next_delay_s(self) -> float:
        """Return the next delay, and raise the bound for the one after it."""
        delay_s = random.uniform(self._bound_s / 2, self._bound_s)  # noqa: S311  jitter, not a secret
        self._bound_s = min(self.factor * self._bound_s, self.max_s)
        return delay_s

    def reset(self) -> None:
        """Start again at `first_s`: the loop has made progress."""
        self._bound_s = self.first_s
