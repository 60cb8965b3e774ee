"""One thing that the agent needs, tried before it runs: whether it is well, and what to do where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckOutcome(StrEnum):
    """What came of a check."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class CheckedPart(StrEnum):
    """What is checked."""

    DISK = "disk"
    BROKER = "broker"
    MANAGEMENT = "management"
    AWS = "aws"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the agent needs: what was found of it, and what to do where it is not well."""

    part: CheckedPart
    what: str
    outcome: CheckOutcome
    found: str
    todo: str | None = None


def failed(part: CheckedPart, what: str, err: Exception, todo: str) -> Check:
    """Make a check of an error."""
    return Check(part, what, CheckOutcome.FAILED, str(err), todo)
