"""One thing that the agent needs, tried before it runs: whether it is well, and what to do where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What came of a check."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """What is checked."""

    DISK = "disk"
    BROKER = "broker"
    MANAGEMENT = "management"
    AWS = "aws"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the agent needs: what was found of it, and what to do where it is not well."""

    part: Part
    what: str
    outcome: Outcome
    found: str
    todo: str | None = None


def failed(part: Part, what: str, err: Exception, todo: str) -> Check:
    """Make a check of an error."""
    return Check(part, what, Outcome.FAILED, str(err), todo)
