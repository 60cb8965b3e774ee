"""Transactions of about ten items instead of a hundred: what takes several of them is tried on a few fragments."""

from __future__ import annotations

import pytest

SMALL = {
    "coldstream.manifest.commit.MAX_ITEMS": 12,
    "coldstream.manifest.commit.MAX_RELINKS": 4,
    "coldstream.manifest.commit.MAX_GAPS": 6,
    "coldstream.archive.missing.MAX_GAPS": 6,
    "coldstream.manifest.compaction.FIRST_REMOVALS": 3,
    "coldstream.manifest.compaction.MAX_REMOVALS": 4,
    "coldstream.lifecycle.sweep.MAX_SWEPT": 9,
    "coldstream.compact.savings.FIRST_REMOVALS": 3,
    "coldstream.compact.savings.MAX_REMOVALS": 4,
    "coldstream.compact.savings.MAX_SWEPT": 9,
}


@pytest.fixture
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan transactions of about ten items."""
    for name, items in SMALL.items():
        monkeypatch.setattr(name, items)
