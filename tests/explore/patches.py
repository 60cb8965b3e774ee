"""What makes shipped code reproducible: no delays, no threads of its own, and its made-up names come from the world."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import pytest

from coldstream.jobs.run import JobRun
from tests.explore.runs import RUNNING
from tests.support.compacting import Inline

POOLS = (
    "archive.staged_segment",
    "archive.upload",
    "compact.blocks",
    "flow.frame_sink",
    "compact.merge",
    "compact.part_upload",
    "compact.run",
    "lifecycle.deletes",
    "rebuild.entries",
    "streams.wal.reader",
    "streams.wal.seal",
)

MADE_UP = ("garbage.write_ahead_logs", "streams.wal.seal", "streams.wal.writer")
"""Modules that make up nonces."""

REACH = 2
"""The bound of `wal_window`, so small that few objects reach it."""


def _name(*_: object) -> str:
    site = RUNNING.get()
    return "x" if site is None else site.name()


@contextmanager
def reproducible() -> Iterator[pytest.MonkeyPatch]:
    """Have each process do one thing at a time, and nothing by chance: what it does follows from its answers alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: None)
        patch.setattr(random, "uniform", lambda low, _: low)
        for module in POOLS:
            patch.setattr(f"coldstream.{module}.ThreadPoolExecutor", Inline)
        # It gives a set: of several writes that have ended, which is committed first would be chance.
        patch.setattr("coldstream.compact.run.wait", lambda under_way, **_: (list(under_way)[:1], ()))
        patch.setattr("coldstream.lifecycle.holds.uuid4", lambda: SimpleNamespace(hex=_name()))
        for module in ("erase.run", "erase.value_digest"):
            patch.setattr(f"coldstream.{module}.secrets", SimpleNamespace(token_hex=_name))
        patch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 0)
        nonces = SimpleNamespace(urandom=lambda size: _name().encode().ljust(size, b"."))
        for module in MADE_UP:
            patch.setattr(f"coldstream.{module}.os", nonces)
        _jobs(patch)
        for module in ("streams.wal.seal", "store.wal_window", "garbage.write_ahead_logs"):
            patch.setattr(f"coldstream.{module}.REACH", REACH)
        yield patch


def _jobs(patch: pytest.MonkeyPatch) -> None:
    """Have a worker write only what its kind writes, and judge its lease by the world's clock."""
    numbers = SimpleNamespace(randbits=lambda _: int.from_bytes(_name().encode()))
    patch.setattr("coldstream.jobs.attempt.secrets", numbers)
    patch.setattr("coldstream.jobs.attempt._LOG.disabled", True)
    patch.setattr("coldstream.jobs.attempt._kept", lambda *_: nullcontext())
    patch.setattr("coldstream.jobs.attempt.JobRun", partial(JobRun, clock=_boot_clock))
    patch.setattr("coldstream.jobs.store.new_id", lambda _: f"0-{_name()}")


def _boot_clock() -> float:
    site = RUNNING.get()
    assert site is not None
    return site.clock() / 1000
