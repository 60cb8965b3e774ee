"""The budget of a run: requests, bytes and time, none of them ever exceeded.

Whatever asks AWS first charges the `Meter`, which refuses what would go past the budget. So a run ends *before* the
request that it cannot afford, with the position of the last thing that it finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from coldstream.errors import InvalidSettingError
from coldstream.units import MIB

MIN_REQUESTS = 100
"""Requests that a run needs to get anywhere: more than the scrub ever makes between two positions, deep reads aside."""


class BudgetSpentError(Exception):
    """The next request does not fit the budget. It ends a run of the scrub, and never leaves this package."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a run may use; None is no limit. `seconds` counts from the run's start.

    Raises InvalidSettingError for less than MIN_REQUESTS requests, a MiB or a second: no run would ever get on.
    """

    requests: int | None = None
    data_bytes: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        limits = (
            ("--max-requests", self.requests, MIN_REQUESTS),
            ("--max-bytes", self.data_bytes, MIB),
            ("--max-seconds", self.seconds, 1),
        )
        for option, limit, least in limits:
            if limit is not None and limit < least:
                raise InvalidSettingError(option, f"{limit} is less than {least}, and no run would ever get on")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used."""

    requests: int
    data_bytes: int
    seconds: float


class Meter:
    """Counts what a run uses. `should_stop` is asked before each request, too: a function's time may be running out.

    `reserved` requests are counted from the start: they are sent whatever happens. So is what `before` was used by
    earlier runs that share the budget; the seconds are of this run alone.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        reserved: int = 0,
        before: Spent = Spent(0, 0, 0),
        should_stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._budget = budget
        self._should_stop = should_stop
        self._clock = clock
        self._began = clock()
        self._requests = before.requests + reserved
        self._data_bytes = before.data_bytes

    @property
    def spent(self) -> Spent:
        """What was used so far."""
        return Spent(self._requests, self._data_bytes, self._clock() - self._began)

    def charge(self, requests: int = 1, data_bytes: int = 0) -> None:
        """Count requests that are about to be sent, and the bytes of objects that they ask for.

        Raises BudgetSpentError, and counts nothing, if they do not fit any more.
        """
        limits = self._budget
        seconds = self._clock() - self._began
        if (
            (limits.requests is not None and self._requests + requests > limits.requests)
            or (limits.data_bytes is not None and self._data_bytes + data_bytes > limits.data_bytes)
            or (limits.seconds is not None and seconds >= limits.seconds)
            or self._should_stop()
        ):
            raise BudgetSpentError
        self._requests += requests
        self._data_bytes += data_bytes

    def can_ever(self, requests: int, data_bytes: int) -> bool:
        """Tell whether a whole run's budget would be enough for so much."""
        limits = self._budget
        return (limits.requests is None or requests <= limits.requests) and (
            limits.data_bytes is None or data_bytes <= limits.data_bytes
        )
