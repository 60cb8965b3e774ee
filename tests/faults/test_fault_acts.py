"""How acts end: which answers of a function are right, and when a job is told to be open."""

from __future__ import annotations

import json

import pytest

from tests.faults.fault_acts import outcome_of

_FAILED = {"statusCode": 500, "body": "The function failed"}


def log_of(*names: str | None) -> str:
    """Return what Powertools' logger writes of these exceptions; None is a line without one."""
    lines = ({"message": "request failed"} | ({} if name is None else {"exception_name": name}) for name in names)
    return "".join(f"{json.dumps(line)}\n" for line in lines)


@pytest.mark.parametrize("name", ["AccessDeniedError", "BadCrcError"])
def test_a_500_is_typed_if_the_log_has_an_error_of_ours(name):
    outcome = outcome_of(_FAILED, log_of(None, name))
    assert outcome.is_typed
    assert not outcome.is_public
    assert name in (outcome.problem or "")


@pytest.mark.parametrize("names", [(), (None,), ("KeyError",), ("AccessDeniedError", "KeyError"), ("Exception",)])
def test_a_500_without_an_error_of_ours_is_a_defect(names):
    assert not outcome_of(_FAILED, log_of(*names)).is_typed


def test_what_callers_can_mend_or_try_again_is_told_in_public():
    outcome = outcome_of({"statusCode": 503, "body": "try again"}, log_of("KeyError"))
    assert outcome.is_typed
    assert outcome.is_public
