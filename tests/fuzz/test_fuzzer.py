"""Coverage-guided fuzzing of every parser: so many inputs each. `make prove` tries thousands of times as many.

A failure prints the input. Put it into tests/fuzz/regressions, a line of base64, with what it found after it.
"""

from __future__ import annotations

from base64 import b64encode

import pytest

from tests.fuzz.campaign import PYTHON, fuzz
from tests.fuzz.catalogue import TARGETS
from tests.fuzz.planted import PLANTED
from tests.support.fixtures import do_without

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _atheris() -> None:
    if not PYTHON.exists():
        do_without("atheris", "make .venv-fuzz/.ready")


def test_no_parser_fails_on_inputs_that_a_fuzzer_makes():
    targets = list(TARGETS.values())
    for found in fuzz(targets, [target.runs for target in targets]):
        assert found.failing is None, f"{found.target.name}: {b64encode(found.failing)!r}\n{found.told[-6000:]}"
        assert found.runs >= found.target.runs, found.told
        assert found.covered, found.told


def test_a_mistake_that_chance_does_not_find_is_found():
    (found,) = fuzz([PLANTED], [1_000_000])
    assert found.failing is not None
    assert found.failing.startswith(b"cold!")
    assert "ZeroDivisionError" in found.told
    assert found.covered
