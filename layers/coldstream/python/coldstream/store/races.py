"""Changes of the manifest that lose a race are planned and written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coldstream.errors import ConflictError, OutcomeUnknownError
from coldstream.retry import retrying

MAX_ATTEMPTS = 30
"""Far more than the writers that change one stream at the same time."""

FIRST_DELAY_S = 0.01
MAX_DELAY_S = 1.0

_Result = TypeVar("_Result")


def retry_lost_races(attempt: Callable[[], _Result]) -> _Result:
    """Call `attempt` until it neither loses a race nor leaves its outcome unknown, with random, growing delays.

    Each attempt must read the manifest again and plan from what it finds. A write whose outcome is unknown may have
    happened: only a new read shows it, and the same change sent twice would be refused.

    Raises the ConflictError or OutcomeUnknownError of the last of MAX_ATTEMPTS attempts.
    """
    repeated = retrying(
        (ConflictError, OutcomeUnknownError),
        attempts=MAX_ATTEMPTS,
        first_delay_s=FIRST_DELAY_S,
        max_delay_s=MAX_DELAY_S,
    )
    return repeated(attempt)
