"""A check: one thing that the agent needs, tried before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckOutcome(StrEnum):
    """The outcome of a check; UNKNOWN if it could not be tried."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class CheckedPart(StrEnum):
    """The part of the agent's surroundings that a check is about."""

    DISK = "disk"
    BROKER = "broker"
    MANAGEMENT = "management"
    AWS = "aws"


@dataclass(frozen=True, slots=True)
class Check:
    """A check that was made: `what` should be so, the `finding`, and `advice` on what to do if it is not so."""

    part: CheckedPart
    what: str
    outcome: CheckOutcome
    finding: str
    advice: str | None = None


def ok(part: CheckedPart, what: str, finding: str) -> Check:
    """Return a check that passed."""
    return Check(part, what, CheckOutcome.OK, finding)


def failed(part: CheckedPart, what: str, finding: str | Exception, advice: str | None = None) -> Check:
    """Return a check that failed."""
    return Check(part, what, CheckOutcome.FAILED, str(finding), advice)


def unknown(part: CheckedPart, what: str, finding: str | Exception, advice: str | None = None) -> Check:
    """Return a check that could not be tried."""
    return Check(part, what, CheckOutcome.UNKNOWN, str(finding), advice)
