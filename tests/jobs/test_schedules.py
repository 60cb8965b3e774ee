"""A job under any schedule of its workers and users, with every trouble that the table may make.

What is promised is held against each write, in tests/support/job_world.py. COLDSTREAM_JOB_SCHEDULES plays more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace

import pytest

from coldstream.jobs import changes, open_marks
from coldstream.jobs.job import Job, JobState
from coldstream.manifest.state_item import StateItem
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.support.job_world import BrokenPromiseError, play

SCHEDULES = int(os.environ.get("COLDSTREAM_JOB_SCHEDULES", "800"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))
PARTS = 4


def play_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patched:
            play(seed, patched)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Leave out what thousands of lost leases would say."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("part", range(PARTS))
def test_any_schedule_keeps_the_promises(part: int) -> None:
    play_all(range(FIRST_SEED + part, FIRST_SEED + SCHEDULES, PARTS))


def _same_epoch(job: Job, worker: str, lease_ms: int, now: TimestampMs, *, first_beat: int) -> Job:
    return replace(ACQUIRED(job, worker, lease_ms, now, first_beat=first_beat), epoch=job.epoch)


def _write_anyhow(table: MemoryTable, *changed: StateItem) -> None:
    table._states |= {(item.partition, item.key): item for item in changed}


ACQUIRED = changes.acquired

GUARDS: dict[str, tuple[str, object, str]] = {
    "a lease ends": (
        "coldstream.jobs.run.JobRun.is_leased",
        lambda run: not run._is_lost,
        "sure of one job",
    ),
    "a silent worker is watched for longer than its lease": (
        "coldstream.jobs.attempt.LeaseWatch.PATIENCE",
        0.1,
        "sure of one job",
    ),
    "each worker raises the epoch": (
        "coldstream.jobs.changes.acquired",
        _same_epoch,
        "taken over|sure of one job",
    ),
    "jobs are written over the revision that was read": (
        "coldstream.store.memory.table.MemoryTable.put_state",
        _write_anyhow,
        "taken over|sure of one job|was lost|two jobs|leaps|appended",
    ),
    "a mark stays until its time is over for certain": (
        "coldstream.jobs.store.is_over",
        lambda mark, job: not open_marks.is_of_now(mark, job),
        "an open job without a mark",
    ),
    "an edit that comes at the end counts": (
        "coldstream.jobs.attempt.is_same_work",
        lambda _, __: True,
        "done is not all of it",
    ),
    "a run takes over what was asked": (
        "coldstream.jobs.changes.interrupted",
        lambda job, now: replace(job, lease=None, wish=None, state=JobState.WAITING, next_at=now),
        "was lost",
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_without_it_a_schedule_breaks_a_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, instead, told = GUARDS[name]
    monkeypatch.setattr(target, instead)
    with pytest.raises(BrokenPromiseError, match=told):
        play_all(range(3000))


def test_a_schedule_is_played_alike_each_time() -> None:
    with pytest.MonkeyPatch.context() as patched:
        calls = [play(7, patched).table.requests for _ in range(2)]
    assert calls[0] == calls[1]
