"""What an operator says about subscriptions that the archive serves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

MAX_UPSTREAM_CREDITS = 256
"""Chunks that the broker may send ahead for one subscription. They bound what is kept while the archive is read."""


class GapPolicy(Enum):
    """What becomes of a subscription that meets offsets which neither broker nor archive has."""

    ERROR = "error"
    """It ends, as if the stream were not available. The log says which offsets are missing, and why."""

    SKIP = "skip"
    """It goes on after them. The log says so."""


@dataclass(frozen=True, slots=True)
class TakeoverOptions:
    """How subscriptions are taken over.

    `gaps` are patterns of stream names, as a shell has them, the first that fits counts; `gap_policy` is for all
    others. `archive_wait_s` is how long a subscription waits for what an agent has not archived yet, `question_s` how
    long the archive may take to answer a question that a client's request waits for.
    """

    gap_policy: GapPolicy = GapPolicy.ERROR
    gaps: tuple[tuple[str, GapPolicy], ...] = ()
    archive_wait_s: float = 60.0
    archive_poll_s: float = 1.0
    question_s: float = 8.0
    max_upstream_credits: int = MAX_UPSTREAM_CREDITS

    def policy_of(self, stream: str) -> GapPolicy:
        """Return what a gap does to the subscriptions of a stream."""
        return next((policy for pattern, policy in self.gaps if fnmatchcase(stream, pattern)), self.gap_policy)
