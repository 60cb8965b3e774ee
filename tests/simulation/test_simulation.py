"""A hundred seeds of the larger world; the same seed twice; and what the judge notices."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.planted import NOTICED, PLANTED
from tests.simulation.play import play

SEEDS = int(os.environ.get("COLDSTREAM_SIMULATIONS", "60"))
FIRST = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))


def test_every_confirmed_message_is_archived_and_read_once_in_every_world():
    figures: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        figures.update(play(seed).figures)
    # A slice in which one of these never happens proves less than it says.
    for what in ("losses", "throttled", "the answer was lost", "before a request", "compact done", "remove done"):
        assert figures[what], f"{what} never happened: {figures}"
    assert figures["epochs"] > 2 * SEEDS


def test_a_seed_gives_the_same_history_each_time():
    first, again = play(FIRST + 3), play(FIRST + 3)
    assert first.told
    assert again == first


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_noticed(name):
    mistake = PLANTED[name]
    with mistake.make(), pytest.raises(NOTICED):
        play(mistake.seed)
