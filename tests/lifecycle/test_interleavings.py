"""The life of a stream, interleaved: every pair of actors exhaustively within bounds, and three to five by chance.

What is held against every state is in tests/support/lifecycle_model.py. A failure's note says how to play it again.
`make prove` goes further than these defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.interleavings import Schedule, interleavings
from tests.support.lifecycle_play import ACTORS, pair, play_random, player, reproducible

SWITCHES = int(os.environ.get("COLDSTREAM_SWITCHES", "1"))
LIVES = int(os.environ.get("COLDSTREAM_INTERLEAVED_LIVES", "100"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))

FEW = ("compact", "retain", "drop", "regret", "hold", "garbage", "late", "upload", "rebuild", "read")
"""The second of a pair by default; with more switches, every actor is."""

CLOSE = (
    ("regret", "drop"),
    ("delete", "undelete"),
    ("late", "cut"),
    ("compact", "retain"),
    ("upload", "garbage"),
    ("slice", "other"),
)
"""Pairs that are explored with two switches always."""

FOUND = (
    ("drop regret", "drop=9 regret drop"),
    ("erase compact", "erase=25 compact erase"),
    ("garbage sweep", "garbage=6! sweep garbage"),
    ("regret drop", "regret=4 drop=15 regret drop"),
    ("drop sweep", "drop=46 sweep=17! drop sweep"),
    ("sweep expire drop", "expire=14 sweep=7 drop=2 sweep drop"),
    ("delete undelete", "delete=2 undelete=3! delete undelete"),
)
"""Schedules that once ended badly: an undeleted stream was purged; an erasure used a deleted key again; an object was
collected before the bucket knew of its fence; a note of an undeletion hid that of a purge; a purged stream's end was
never noted; the model took it for a fault that what retention removed goes before a later deletion is noted; and the
late note of a deletion hid an undeletion whose process had died."""


@pytest.fixture(autouse=True)
def _reproducible() -> Iterator[None]:
    with reproducible():
        yield


@pytest.mark.parametrize("first", ACTORS)
def test_each_actor_may_be_interrupted_by_any_other_and_killed_at_any_call(first: str) -> None:
    for second in ACTORS if SWITCHES > 1 else FEW:
        names = pair(first, second)
        assert interleavings(*names, player(names), switches=SWITCHES)


@pytest.mark.parametrize("names", CLOSE, ids=" ".join)
def test_close_pairs_may_interrupt_each_other_twice(names: tuple[str, str]) -> None:
    assert interleavings(*names, player(names), switches=2) > 5


@pytest.mark.parametrize(("names", "schedule"), FOUND)
def test_schedules_that_once_ended_badly_end_well(names: str, schedule: str) -> None:
    player(names.split())(Schedule.parse(schedule))


def test_lives_of_several_actors_that_die_and_hear_no_answers_end_well() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + LIVES):
        play_random(seed)
