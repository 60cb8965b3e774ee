"""Retries, with growing delays, jitter, and a bound.

`retrying` repeats one call, by tenacity. `Backoff` paces a loop that has no single call to repeat: one that polls, or
one that reconnects for as long as its process runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

Retryable = type[Exception] | tuple[type[Exception], ...] | Callable[[BaseException], bool]
"""The errors after which a call is repeated: one type, several, or those that a predicate accepts."""


def retrying(on: Retryable, *, attempts: int, first_delay_s: float, max_delay_s: float) -> Retrying:
    """Return a caller that repeats a function, at most `attempts` times in all, while it raises an error of `on`.

    It raises the last error. The delay before each further attempt is random, between 0 and a bound that starts at
    `first_delay_s` and doubles up to `max_delay_s`: writers that collided once must not collide again in step.
    """
    return Retrying(
        retry=_condition(on),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=first_delay_s, max=max_delay_s),
        reraise=True,
    )


def _condition(on: Retryable) -> retry_if_exception:
    return retry_if_exception_type(on) if isinstance(on, type | tuple) else retry_if_exception(on)


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
