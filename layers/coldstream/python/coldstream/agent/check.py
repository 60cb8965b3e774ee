"""One thing that the agent needs, tried before it runs: whether it is well, and what to do where it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import AccessDeniedError, ColdstreamError


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


def failed(part: Part, what: str, err: Exception, todo: str, *, if_denied: str | None = None) -> Check:
    """Make a check of an error; `if_denied` is what to do where the error is that access is denied."""
    is_denied = isinstance(err, AccessDeniedError)
    return Check(part, what, Outcome.FAILED, str(err), if_denied if is_denied and if_denied is not None else todo)


def tried(part: Part, what: str, call: Callable[[], str], todo: str, *, if_denied: str | None = None) -> Check:
    """Try a call that returns what was found."""
    try:
        return Check(part, what, Outcome.OK, call())
    except (ColdstreamError, OSError) as err:
        return failed(part, what, err, todo, if_denied=if_denied)
