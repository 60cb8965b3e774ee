"""Whatever reads show of unfinished transactions, and whichever writer dies: each change leaves the manifest right."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.histories import History

HISTORIES = int(os.environ.get("COLDSTREAM_HISTORIES", "150"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))


@pytest.fixture(autouse=True)
def _without_delays(monkeypatch: pytest.MonkeyPatch, small_transactions: None) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)


def test_histories_of_writers_with_weak_reads_end_in_a_right_manifest() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        try:
            History(seed).run()
        except BaseException as err:
            err.add_note(f"history {seed}")
            raise


def test_nothing_that_retention_or_deletion_removed_comes_back() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES // 3):
        try:
            History(seed, is_removed_from=True).run()
        except BaseException as err:
            err.add_note(f"history {seed}")
            raise
