"""Whichever function dies, and in whatever order copies come: each is archived or quarantined whole, never spliced."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.compacting import Inline
from tests.support.upload_histories import UploadHistory

HISTORIES = int(os.environ.get("COLDSTREAM_UPLOAD_HISTORIES", "300"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))


@pytest.fixture(autouse=True)
def _as_is_reproducible(monkeypatch: pytest.MonkeyPatch, small_transactions: None) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    for module in ("archive.upload", "archive.staged_segment", "compact.run", "flow.frame_sink"):
        monkeypatch.setattr(f"coldstream.{module}.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("coldstream.archive.staged_segment.RANGE_BYTES", 500)
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 150)
    monkeypatch.setattr("coldstream.archive.draft.STEP_BYTES", 150)


def test_every_chunk_of_each_staged_copy_is_archived_or_in_quarantine() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        try:
            UploadHistory(seed).run()
        except BaseException as err:
            err.add_note(f"history {seed}")
            raise
