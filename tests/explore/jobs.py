"""Workers that want one job, and people who steer it: the shipped store of jobs, leases and attempts.

A worker looks for work, takes what is due or whose worker is gone, and sends each part of it to a target, which tells
whether it has a part already. Its lease is judged by the clock since its host began; its other clock may step. What a
worker writes in a thread of its own it writes here at each part.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from zlib import crc32

import pytest

from coldstream.errors import (
    ContradictionError,
    IdempotencyError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    ObjectExistsError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.jobs.attempt import LeaseWatch, acquire, run_attempt
from coldstream.jobs.job import JOBS, Job
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import JobSpec, LoadSpec, parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.state import ManifestState
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.explore.base import NOW, STREAM
from tests.explore.bucket_store import BucketState
from tests.explore.names_store import NamesState
from tests.explore.runs import Role
from tests.explore.site import Site
from tests.explore.world import Faults, World

JOB = "0-job"
KEY = "first"
"""The key with which the job was created."""

PLAIN_SPEC = {"kind": "load", "streams": ["one"], "target": {"type": "stream", "broker": "b", "name": "two"}}
PARTS = 2
LOOKS = 2
LEASE_S = 15.0
WAIT_MS = 20_000
"""Longer than a lease may stand still."""

REFUSED = (JobStateError, JobNotFoundError, IdempotencyError)

Work = Callable[[Site], None]


def boot_clock(site: Site) -> float:
    """Return the time since a host began: nobody sets it, so it steps never."""
    return site.clock() / 1000


def worker(name: str, site: Site, *, kind: Callable[[Site, JobRun], RunEnd] | None = None) -> None:
    """Look for work twice, with more than a lease in between, and do it."""
    store = JobStore(site.table, site.host_clock)  # type: ignore[arg-type]
    watch = LeaseWatch(partial(boot_clock, site))
    for look in range(LOOKS):
        if look:
            site.wait(WAIT_MS)
        for job in store.open_jobs():
            since = boot_clock(site)
            is_dead = watch.is_dead(job)
            taken = acquire(store, job, name, is_dead=is_dead, lease_s=LEASE_S, now=site.host_clock)
            if taken is not None:
                site.tell("took", f"{taken.id} {taken.epoch} {name}")
                run_attempt(store, taken, partial(kind or load, site), now=site.host_clock, leased_since=since)


def load(site: Site, run: JobRun) -> RunEnd:
    """Read each part, send it once the lease is certain, and tell how far that is once the target has it."""
    while (at := int(run.cursor.get("at", 0))) < PARTS:
        site.table.gap(STREAM.incarnation, Offset(at))  # it takes a while to read a part
        run.check_lease()
        site.tell("sends", f"{run.job.id} {run.job.epoch}")
        send(site, run.job.id, at)
        run.advance(cursor={"at": at + 1}, done=at + 1, messages=1)
        run.checkpoint()
        if run.should_stop():
            return Interrupted()
    site.tell("did", f"{run.job.id} {end_of(run.job)}")
    return Finished()


def flawed(_: Site, run: JobRun) -> RunEnd:
    """Fail in a way that no other attempt mends."""
    raise ContradictionError(run.job.id, 0, "is not as it was")


def straggler(name: str, site: Site) -> None:
    """Work with a thread that tells how far it is once more, when the attempt is over."""
    runs: list[JobRun] = []

    def kind(site: Site, run: JobRun) -> RunEnd:
        runs.append(run)
        return load(site, run)

    worker(name, site, kind=kind)
    for run in runs:
        with suppress(LeaseLostError):
            run.checkpoint()


class _Late:
    """A table that takes the first transaction when all else is done: nothing was heard of it, and it arrives late."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._late: tuple[Any, ...] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def put_state(self, *changed: Any) -> None:
        if self._late is None:
            self._late = changed
            raise OutcomeUnknownError("no answer came")
        self._table.put_state(*changed)

    def arrive(self, store: JobStore) -> None:
        assert self._late is not None
        job = next(Job.from_item(item) for item in self._late if item.partition == JOBS)
        store._create(job, self._late, "")


def late_creator(site: Site) -> None:
    """Create a job, without a key, of which the first request arrives after the second was answered."""
    table = _Late(site.table)
    store = JobStore(table, site.host_clock)  # type: ignore[arg-type]
    store.create(named(""))
    table.arrive(store)


def send(site: Site, job: str, at: int) -> None:
    """Have the target hold a part, which it may hold already."""
    body = str(at).encode()
    try:
        site.objects.put_new(part_key(job, at), io.BytesIO(body), size_bytes=len(body), crc32=crc32(body))
    except ObjectExistsError:
        return


def part_key(job: str, at: int) -> str:
    """Return where the target holds a part."""
    return f"target/{job}/{at}"


def end_of(job: Job) -> str:
    """Return where a job is to end: what is edited here."""
    assert isinstance(job.spec, LoadSpec)
    return job.spec.end or "none"


def person(name: str, steps: Sequence[Callable[[JobStore], object]]) -> Callable[[str], Work]:
    """Return somebody who does something to the job, and is told that it is done."""

    def work(site: Site) -> None:
        store = JobStore(site.table, site.host_clock)  # type: ignore[arg-type]
        for step in steps:
            step(store)
        site.tell("told", name)

    return lambda _: work


def creator(key: str, name: str = "") -> Callable[[str], Work]:
    """Return somebody who creates a job with a key that may have been given before."""

    def work(site: Site) -> None:
        job = JobStore(site.table, site.host_clock).create(named(name), idempotency_key=key)  # type: ignore[arg-type]
        site.tell("created", f"{job.id} {key} {name}")

    return lambda _: work


def named(name: str) -> JobSpec:
    """Return what a job is to do, with a name."""
    return parse_spec({**PLAIN_SPEC, "name": name})


JOBS_ACTORS: dict[str, Callable[[str], Work]] = {
    "work": lambda name: partial(worker, name),
    "cancel": person("cancel", [lambda store: store.cancel(JOB)]),
    "pause": person("pause", [lambda store: store.pause(JOB)]),
    "resume": person("resume", [lambda store: store.resume(JOB)]),
    "edit": person("edit", [lambda store: store.edit(JOB, {"end": "9"})]),
    "remove": person("remove", [lambda store: store.delete(JOB)]),
    "drop": person("drop", [lambda store: store.cancel(JOB), lambda store: store.delete(JOB)]),
    "flawed": lambda name: partial(worker, name, kind=flawed),
    "straggle": lambda name: partial(straggler, name),
    "belated": lambda _: late_creator,
    "create": creator("key"),
    "again": creator(KEY),
    "differ": creator(KEY, "other"),
}
"""By kind, what an actor of a name does."""


def jobs_world(names: Sequence[str], *, faults: str = "0c0l0r") -> World:
    """Return a job that nobody has begun, and who wants it."""
    table = MemoryTable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coldstream.jobs.store.new_id", lambda _: JOB)
        JobStore(table, lambda: NOW).create(named(""), idempotency_key=KEY)
    again = UnavailableError, OutcomeUnknownError
    roles = [Role(name, JOBS_ACTORS[name.partition(".")[0]](name), REFUSED, again) for name in names]
    return World(
        stream=STREAM,
        log=ManifestState(),
        recorded={},
        names=NamesState.of(table),
        bucket=BucketState({}),
        now=NOW,
        roles=roles,
        faults=Faults.parse(faults),
    )
