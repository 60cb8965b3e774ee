"""What was mended stays mended: each line of corpus.tsv names a seed, which is played here, or a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.play import play

HERE = Path(__file__)
LINES = [line.split("\t") for line in HERE.with_name("corpus.tsv").read_text().splitlines()[1:]]
SEEDS = [int(plays.removeprefix("seed ")) for plays, *_ in LINES if plays.startswith("seed ")]
TESTS = [plays for plays, *_ in LINES if not plays.startswith("seed ")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_once_ended_badly_ends_well(seed):
    play(seed)


@pytest.mark.parametrize("named", TESTS)
def test_a_test_that_holds_what_was_mended_is_there(named):
    path, name = named.split("::")
    assert re.search(rf"^(async )?def {name}\(", (HERE.parents[2] / path).read_text(), re.MULTILINE), named


def test_each_line_says_what_it_broke_and_names_a_commit():
    for _, broke, commit in LINES:
        assert broke
        assert re.fullmatch("[0-9a-f]{7,}", commit)
