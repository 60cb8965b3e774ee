"""Each change of state for each kind, against a running worker: asked for, and done within a bound.

The archive is in memory and answers slowly, so that each kind is at work for a while. What the kinds do is held against
what it should be elsewhere; here it is that they stop, go on, change and end when they are asked to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coldstream.errors import JobNotFoundError
from coldstream.jobs.job import JobState
from coldstream.jobs.specs import JobKind, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import RangeRead
from coldstream.units import ByteRange, TimestampMs, now_ms
from coldstream.worker import load_sink, segment_sink
from coldstream.worker.kinds import kinds_of
from coldstream.worker.options import WorkerOptions
from coldstream.worker.worker import Worker
from tests.support.segments import MemoryArchive
from tests.worker.samples import SampleArchive

pytestmark = pytest.mark.slow

WITHIN_S = 30.0
STREAMS = 20
SLOW_S = 0.01


class SlowTable(MemoryTable):
    """A table whose heads take their time, once it is slow."""

    is_slow = False

    def head(self, incarnation: Incarnation) -> Head | None:
        time.sleep(SLOW_S if self.is_slow else 0)
        return super().head(incarnation)


class SlowObjects(MemoryObjects):
    """Objects that take their time, once they are slow."""

    is_slow = False

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        time.sleep(SLOW_S if self.is_slow else 0)
        return super().get_range(key, byte_range, if_match=if_match)


class SlowWorld:
    def __init__(self, tmp_path: Path) -> None:
        archive = MemoryArchive(fragment_bytes=2_000)
        self.table, self.objects = SlowTable(), SlowObjects()
        archive.use(table=self.table, objects=self.objects)
        self.archive = SampleArchive(archive)
        for number in range(STREAMS):
            self.archive.fill(f"orders-{number:02}", 60)
            self.archive.fill(f"orders-{number:02}", 60)
        self.table.is_slow = self.objects.is_slow = True
        self.ahead_ms = 0
        self.jobs = JobStore(self.table, lambda: TimestampMs(now_ms() + self.ahead_ms))
        self.tools = self.archive.tools(tmp_path / "state")
        self.fields: dict[JobKind, dict[str, Any]] = {
            JobKind.LOAD: {
                "streams": ["orders-*"],
                "target": {"type": "table", "path": str(tmp_path / "table"), "format": "jsonl"},
            },
            JobKind.EXPORT: {
                "streams": ["orders-*"],
                "destination": str(tmp_path / "export"),
                "format": "segments",
            },
            JobKind.COMPACT: {"older_than": "0s", "streams": ["orders-*"]},
            JobKind.SCRUB: {"deep": True, "streams": ["orders-*"]},
            JobKind.ERASE: {"stream": "orders-00", "offsets": "3:9", "reason": "ticket 4711"},
            JobKind.RETENTION: {"streams": ["orders-*"]},
        }

    def create(self, kind: JobKind, **more: Any) -> str:
        return self.jobs.create(parse_spec({"kind": kind.value, **self.fields[kind], **more})).id

    def state(self, job_id: str) -> JobState:
        return self.jobs.get(job_id).state

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, [self.jobs.get(job.id) for job in self.jobs.page().jobs]
            time.sleep(0.01)

    @contextmanager
    def working(self) -> Iterator[None]:
        options = WorkerOptions(lease_s=3.0, poll_s=0.05, state=self.tools.state)
        worker = Worker(self.jobs, kinds_of(self.tools), options, keep_every_s=0.05)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join(WITHIN_S)
            assert not thread.is_alive()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowWorld:
    monkeypatch.setattr(segment_sink, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(load_sink, "SPAN_BYTES", 1)
    return SlowWorld(tmp_path)


KINDS = [JobKind.LOAD, JobKind.EXPORT, JobKind.COMPACT, JobKind.SCRUB, JobKind.RETENTION]
"""Those that go over many streams. An erasure is of one; store jobs want a broker (test_store_broker.py)."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_job_pauses_resumes_is_edited_and_ends(world: SlowWorld, kind: JobKind) -> None:
    job = world.create(kind)
    with world.working():
        world.until(lambda: world.jobs.get(job).progress.done > 0)
        world.jobs.pause(job)
        world.until(lambda: world.state(job) is JobState.PAUSED)
        done = world.jobs.get(job).progress.done
        time.sleep(0.2)
        assert world.jobs.get(job).progress.done == done
        world.jobs.resume(job)
        world.until(lambda: world.state(job) is JobState.RUNNING)
        world.jobs.edit(job, {"name": "another name"})
        world.until(lambda: world.state(job) is JobState.SUCCEEDED)
    found = world.jobs.get(job)
    assert found.spec.name == "another name"
    assert (found.epoch, found.attempts, found.skipped.count) == (2, found.attempts, 0)
    assert any("goes on as edited" in line.text for line in world.jobs.log(job))
    world.jobs.delete(job)
    with pytest.raises(JobNotFoundError):
        world.jobs.get(job)


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_job_is_cancelled(world: SlowWorld, kind: JobKind) -> None:
    job = world.create(kind)
    with world.working():
        world.until(lambda: world.jobs.get(job).progress.done > 0)
        world.jobs.cancel(job)
        world.until(lambda: world.state(job) is JobState.CANCELLED)
    assert world.jobs.get(job).lease is None
    world.jobs.delete(job)


@pytest.mark.parametrize("kind", [*KINDS, JobKind.ERASE])
def test_a_job_that_nobody_has_yet_pauses_resumes_and_runs(world: SlowWorld, kind: JobKind) -> None:
    job = world.create(kind)
    world.jobs.pause(job)
    with world.working():
        time.sleep(0.2)
        assert world.state(job) is JobState.PAUSED
        world.jobs.resume(job)
        world.until(lambda: world.state(job) is JobState.SUCCEEDED)


@pytest.mark.parametrize("kind", [*KINDS, JobKind.ERASE])
def test_a_scheduled_job_runs_again_when_it_is_time_and_ends_when_it_is_cancelled(
    world: SlowWorld, kind: JobKind
) -> None:
    world.table.is_slow = world.objects.is_slow = False
    job = world.create(kind, schedule="every 1h")
    with world.working():
        world.until(lambda: world.jobs.get(job).runs == 1)
        assert world.state(job) is JobState.WAITING
        world.ahead_ms += 3_700_000
        world.until(lambda: world.jobs.get(job).runs == 2)
        found = world.jobs.get(job)
        assert found.failed_runs == 0, found.reason
        world.jobs.cancel(job)
    assert world.state(job) is JobState.CANCELLED


def test_rate_and_end_of_a_load_are_edited_while_it_runs(world: SlowWorld) -> None:
    world.table.is_slow = world.objects.is_slow = False
    for _ in range(20):
        world.archive.fill("orders-00", 60)
    job = world.create(JobKind.LOAD, streams=["orders-00"], rate=60)
    with world.working():
        world.until(lambda: world.jobs.get(job).progress.done > 0)
        world.jobs.edit(job, {"end": "900"})
        world.until(lambda: world.jobs.get(job).progress.total == 900)
        assert world.state(job) is JobState.RUNNING
        world.jobs.edit(job, {"rate": None})
        world.until(lambda: world.state(job) is JobState.SUCCEEDED)
    found = world.jobs.get(job)
    assert (found.progress.done, found.epoch) == (900, 1)
