"""A hundred seeds of the larger world; the same seed twice; and what the judge notices."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.planted import PLANTED, first_noticed
from tests.simulation.play import play

SEEDS = int(os.environ.get("COLDSTREAM_SIMULATIONS", "100"))
MOST_SEEDS = 40
"""So many are played until a planted mistake has to be noticed."""
FIRST = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))

HAPPENS = (
    *("losses", "throttled", "the answer was lost", "before a request", "compact done", "remove done"),
    *("gaps told", "consumers that began later", "consumers that ended and started again"),
    *("gateway: takeovers_total", "gateway: handovers_total", "gateway: returns_total", "lives of gateways"),
    *("messages erased", "erase died", "hold done", "delete done", "undelete done", "streams purged"),
    *("batches acknowledged to appenders", "batches refused", "jobs deleted", "steps of jobs", "steps done again"),
)


def test_every_confirmed_message_is_archived_and_read_once_in_every_world():
    figures: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        figures.update(play(seed).figures)
    # A slice in which one of these never happens proves less than it says.
    for what in HAPPENS:
        assert figures[what], f"{what} never happened: {figures}"
    assert figures["epochs"] > 2 * SEEDS


def test_a_seed_gives_the_same_history_each_time():
    first, again = play(FIRST + 3), play(FIRST + 3)
    assert first.told
    assert again == first


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_noticed(name):
    mistake = PLANTED[name]
    # First by the seed that is written down: others are played only if the world has changed since.
    assert first_noticed(mistake, 1, mistake.seed) or first_noticed(mistake, MOST_SEEDS)
