"""What was mended stays mended. Each line of corpus.tsv names what plays it, and all of it is there:

a planted mistake that brings it back, and has to be noticed (`test_simulation.py`), or a test elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.planted import PLANTED

HERE = Path(__file__)
LINES = [line.split("\t") for line in HERE.with_name("corpus.tsv").read_text().splitlines()[1:]]
MISTAKES = [plays.removeprefix("planted: ") for plays, *_ in LINES if plays.startswith("planted: ")]
TESTS = [plays for plays, *_ in LINES if "::" in plays]


@pytest.mark.parametrize("named", TESTS)
def test_a_test_that_holds_what_was_mended_is_there(named):
    path, name = named.split("::")
    assert re.search(rf"^(async )?def {name}\(", (HERE.parents[2] / path).read_text(), re.MULTILINE), named


def test_a_mistake_that_brings_back_what_was_mended_is_planted():
    assert MISTAKES
    assert set(MISTAKES) <= set(PLANTED)
    assert len(MISTAKES) + len(TESTS) == len(LINES)


def test_each_line_says_what_it_broke_and_names_a_commit():
    for _, broke, commit in LINES:
        assert broke
        assert re.fullmatch("[0-9a-f]{7,}", commit)
