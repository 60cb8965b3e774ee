"""Which keys a log names: what the join says is what the log says, however the pages fall."""

from __future__ import annotations

import random

import pytest

from coldstream.garbage.log_names import LogNames
from coldstream.units import Offset
from tests.garbage.littered import LitteredArchive
from tests.store.samples import ORDERS

LIFE = ORDERS.incarnation


@pytest.mark.usefixtures("small_transactions")
@pytest.mark.parametrize("seed", range(30))
def test_the_join_finds_exactly_the_keys_of_the_log(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("coldstream.garbage.log_names.FIRST_ENTRIES", rng.choice([1, 2, 8]))
    monkeypatch.setattr("coldstream.garbage.log_names.PAGE_ENTRIES", rng.choice([2, 5, 1000]))
    archive = LitteredArchive()
    first = 0
    for _ in range(rng.randrange(6, 60)):
        following = first + rng.randrange(1, 30)
        archive.archive(first, following, rng.choice([0, 0, 1, 2]))
        first = following
    if rng.random() < 0.5:
        archive.compact_half(generation=5)
    named = {one.key for one in archive.table.log_from_offset(LIFE, Offset(0), 1000).entries}
    asked = [(Offset(at), generation) for at in range(first + 20) for generation in (0, 1, 2, 5) if rng.random() < 0.5]
    log = LogNames(archive.table, archive.head())
    found = {key for key, at in ((archive.keys.fragment(LIFE, at, one), at) for at, one in asked) if log.names(key, at)}
    assert found == named & {archive.keys.fragment(LIFE, *one) for one in asked}


def test_far_apart_keys_take_a_query_each_and_near_ones_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.garbage.log_names.PAGE_ENTRIES", 64)
    archive = LitteredArchive()
    for first in range(0, 3000, 10):
        archive.archive(first, first + 10)
    head = archive.head()

    def queries(offsets: range) -> int:
        log = LogNames(archive.table, head)
        before = archive.table.requests["Query"]
        for first in offsets:
            assert log.names(archive.keys.fragment(LIFE, Offset(first)), Offset(first))
        return archive.table.requests["Query"] - before

    assert queries(range(0, 3000, 10)) == 5  # of 64 entries each
    assert queries(range(0, 3000, 1000)) == 3
