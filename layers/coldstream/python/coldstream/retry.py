"""Retries: growing delays with jitter, and a bound on each.

`retrying` and `retrying_async` repeat one call, by tenacity. `Backoff` paces a loop that has no single call to repeat:
one that polls, or that reconnects for as long as its process runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tenacity import (
    AsyncRetrying,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.nap import sleep as nap


def retrying(
    on: type[Exception] | tuple[type[Exception], ...] | Callable[[BaseException], bool],
    *,
    attempts: int,
    first_delay_s: float,
    max_delay_s: float,
    sleep: Callable[[float], None] = nap,
) -> Retrying:
    """Return what calls a function, `attempts` times at most, while it raises one of `on`; the last error comes out.

    `on` may also be a function that tells whether an error is worth another attempt. The delay before each further
    attempt is random, between 0 and a bound that starts at `first_delay_s` and doubles up to `max_delay_s`: writers
    that collided once do not collide again in step. `sleep` waits for it, and may return early.
    """
    return Retrying(
        sleep=sleep,
        retry=retry_if_exception_type(on) if isinstance(on, type | tuple) else retry_if_exception(on),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=first_delay_s, max=max_delay_s),
        reraise=True,
    )


def retrying_async(
    on: type[Exception] | tuple[type[Exception], ...], *, attempts: int, first_delay_s: float, max_delay_s: float
) -> AsyncRetrying:
    """Return `retrying` for a coroutine function."""
    return AsyncRetrying(
        retry=retry_if_exception_type(on),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=first_delay_s, max=max_delay_s),
        reraise=True,
    )


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
