"""Jobs of upkeep in memory: streams in one archive, workers that stop or die at any call, and others that go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from coldstream.jobs.attempt import acquire, run_attempt
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import JobRun, RunEnd
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import Offset, TimestampMs
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.kinds import UPKEEP_KINDS
from tests.erase.archived import MessageArchive
from tests.support.compacting import Calls
from tests.support.lifecycle import GRACE_MS, Clock

KEYS = Keys()
MINUTE_MS = 60_000


def stream_of(name: str, vhost: str = "/", declared: int = 1) -> StreamId:
    return StreamId(vhost, name, Incarnation(f"__{name.replace('.', '_')}_{1763700000000000000 + declared}"))


@dataclass
class UpkeepWorld:
    """One archive in memory with its jobs. `clock` is everybody's, and stands still until a test moves it."""

    versioned: bool = False
    may_sweep: bool = True
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.table = MemoryTable()
        self.objects = MemoryObjects(versioned=self.versioned, clock=self.clock)
        self.streams: dict[StreamId, MessageArchive] = {}

    def stream(self, name: str, *fragments: int, vhost: str = "/", declared: int = 1) -> MessageArchive:
        """Archive a stream with fragments of so many chunks."""
        archive = MessageArchive(stream_of(name, vhost, declared), objects=self.objects, table=self.table)
        for chunks in fragments:
            archive.add(chunks)
        self.streams[archive.stream] = archive
        return archive

    @property
    def jobs(self) -> JobStore:
        return JobStore(self.table, self.clock)

    def create(self, kind: str, **fields: Any) -> Job:
        return self.jobs.create(parse_spec({"kind": kind, **fields}), by="ann")

    def stores(self, calls: Calls | None = None) -> LifecycleStores:
        table: ManifestTable = self.table if calls is None else calls.table
        objects: ObjectStore = self.objects if calls is None else calls.objects
        opened = LifecycleStores.open(self.table, self.objects, KEYS, grace_ms=GRACE_MS)
        return replace(opened, table=table, objects=objects, now=self.clock)

    def attempt(
        self,
        job_id: str,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        calls: Calls | None = None,
        takes_over: bool = False,
        writes: Callable[[], bool] = lambda: False,
    ) -> Job | None:
        """Take a job, and run it once. `writes` says whether the worker writes at once what the kind has just told."""
        job = acquire(self.jobs, self.jobs.get(job_id), "tester", is_dead=takes_over, now=self.clock)
        if job is None:
            return None
        store = self.jobs if calls is None else JobStore(calls.table, self.clock)
        archive = UpkeepArchive(self.stores(calls), may_sweep=self.may_sweep)

        def kind(run: JobRun) -> RunEnd:
            return UPKEEP_KINDS[run.spec.kind](_writing(run, writes), archive)

        return run_attempt(store, job, kind, worker_stops=should_stop, now=self.clock, keep_every_s=3600)

    def finish(self, job_id: str) -> Job:
        """Run a job until it does not go on by itself."""
        for _ in range(1000):
            self.clock.now = max(self.clock.now, self.jobs.get(job_id).next_at or TimestampMs(0))
            job = self.attempt(job_id)
            if job is None or job.state is not JobState.WAITING:
                return self.jobs.get(job_id)
        raise AssertionError("the job never ends")

    def run(self, kind: str, **fields: Any) -> Job:
        """Create a job, and run it to its end."""
        return self.finish(self.create(kind, **fields).id)

    def log(self, job_id: str) -> str:
        return "\n".join(line.text for line in self.jobs.log(job_id))


def _writing(run: JobRun, writes: Callable[[], bool]) -> JobRun:
    told = run.advance

    def advance(**facts: Any) -> None:
        told(**facts)
        if writes():
            run.checkpoint()

    run.advance = advance  # type: ignore[method-assign]
    return run


class StopsAfter:
    """Tells a run to stop from its so-and-so-many-th question on."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def hold(world: UpkeepWorld, stream: StreamId, first_offset: int, next_offset: int | None) -> str:
    """Put a legal hold on offsets of a stream, and return its id."""
    put = put_hold(
        world.stores(),
        stream.incarnation,
        first_offset=Offset(first_offset),
        next_offset=None if next_offset is None else Offset(next_offset),
        reason="lawsuit",
        by="eve",
        wait=lambda _: None,
    )
    return put.id
