"""Store jobs on a real broker: from where they begin to where they end, and back out of the archive again."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent import losses
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.recording import recorder
from coldstream.agent.state_directory import StateDirectory
from coldstream.archive.events import event_of
from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.format.amqp.message import messages
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import JobRun, RunEnd
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.keys import Keys
from coldstream.units import Offset, format_timestamp, now_ms
from coldstream.worker import store as store_module
from coldstream.worker.brokers import BrokerBook
from coldstream.worker.kinds import kinds_of
from coldstream.worker.tools import WorkerTools
from tests.support.broker import Broker
from tests.support.segments import MemoryArchive
from tests.support.streams import StreamConnection as Streams
from tests.worker.samples import JobPlayer
from tests.worker.test_load_broker import read

WITHIN_S = 60.0
_NAMES = (f"stored-{number}" for number in itertools.count())


class PromptBus:
    """An event bus behind which the upload function runs at once."""

    def __init__(self, archive: MemoryArchive) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self.lost: list[str] = []

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        parsed = {"source": source, "detail-type": detail_type, "detail": json.loads(detail)}
        event = event_of(json.dumps(parsed))
        with self._lock:
            if isinstance(event, SegmentLost):
                self.lost.append(event.reason)
                record_loss(self._archive.table, self._archive.uploader.control, event, now_ms)
            else:
                self._archive.uploader.upload(event)


@dataclass(frozen=True, slots=True)
class PromptTools(WorkerTools):
    """Tools of a worker whose archive is in memory."""

    bus: PromptBus | None = None

    def archive_client(self, limit: BandwidthLimit, uploads: int) -> ArchiveClient:
        assert self.bus is not None
        return ArchiveClient(self.table, self.objects, self.bus, self.keys, limit)


@dataclass
class StoreWorld:
    broker: Broker
    streams: Streams
    root: Path
    archive: MemoryArchive = field(default_factory=lambda: MemoryArchive(100_000))
    published: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bus = PromptBus(self.archive)
        self.name = next(_NAMES)
        brokers = BrokerBook({"default": self.broker.stream_uri}, {}, {"default": self.broker.management_url})
        tools = PromptTools(
            self.archive.table, self.archive.objects, Keys("archive/"), brokers, self.root / "a", environment={}
        )
        self.player = JobPlayer(replace(tools, bus=self.bus))

    def on_another_machine(self) -> None:
        """Have the next attempts run where nothing of the earlier ones is."""
        self.player.tools = replace(self.player.tools, state=self.root / f"machine-{self.player.attempts}")

    def create_stream(self, name: str) -> None:
        self.streams.create_stream(name, max_segment_bytes=1_000_000)

    def publish(self, name: str, count: int) -> None:
        known = self.published.setdefault(name, [])
        bodies = [b"%s %d" % (name.encode(), len(known) + number) for number in range(count)]
        self.streams.publish(name, bodies)
        known += bodies

    def archived(self, name: str) -> list[bytes]:
        """Return what is archived of all incarnations of a stream; a gap inside of one is an error."""
        found: list[bytes] = []
        for stream in self.archive.table.streams(None, 500).streams:
            head = self.archive.table.head(stream.incarnation)
            if stream.name != name or head is None or head.next_offset is None:
                continue
            for step in plan_scan(self.archive.table, stream, Offset(0)):
                assert isinstance(step, ScanSlice), step
                for chunk in read_slice(self.archive.objects, step):
                    found += [one.raw for one in messages(chunk, source=step.key)]
        return found

    @contextmanager
    def running(self, job: Job) -> Iterator[threading.Event]:
        """Run attempts of a job in another thread; setting the event, or the end of the block, ends the worker."""
        stops = threading.Event()

        def work() -> None:
            self.player.attempt(job, worker_stops=stops.is_set)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield stops
        finally:
            stops.set()
            thread.join(WITHIN_S)
            assert not thread.is_alive()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def world(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreWorld]:
    monkeypatch.setattr(losses, "SUSPICION_S", 0.2)
    monkeypatch.setattr(recorder, "CLOCKS_APART_MS", 500)
    monkeypatch.setattr(store_module, "CLOCKS_APART_MS", 500)
    monkeypatch.setattr(recorder, "END_IDLE_S", 0.3)
    monkeypatch.setattr(store_module, "LOOK_S", 0.05)
    with broker.connect() as streams:
        yield StoreWorld(broker, streams, tmp_path)


def fields(world: StoreWorld, **more: Any) -> dict[str, Any]:
    return {"streams": [world.name], "max_lag": "3s", "poll_interval": "1s", **more}


def test_a_stream_is_archived_to_an_offset_and_loaded_back(world: StoreWorld) -> None:
    world.create_stream(world.name)
    world.publish(world.name, 500)
    job = world.player.run("store", **fields(world, end="500"))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert world.archived(world.name) == world.published[world.name]
    assert (job.progress.done, job.progress.messages, job.progress.lag_ms) == (500, 500, 0)
    assert job.progress.bytes > 5_000
    assert not list((world.root / "a").iterdir())
    back = f"{world.name}-again"
    world.create_stream(back)
    loaded = world.player.run("load", streams=[world.name], target={"type": "stream", "name": back})
    assert loaded.state is JobState.SUCCEEDED, loaded.reason
    assert read(world.streams, back, 500) == world.published[world.name]


def test_streams_that_match_are_archived_also_one_that_comes_later(world: StoreWorld) -> None:
    first, later = f"{world.name}-1", f"{world.name}-2"
    world.create_stream(first)
    world.publish(first, 50)
    job = world.player.create("store", **fields(world, streams=[f"{world.name}-*"]))
    with world.running(job):
        world.until(lambda: world.archived(first) == world.published[first])
        world.create_stream(later)
        world.publish(later, 30)
        world.publish(first, 20)
        world.until(lambda: world.archived(later) == world.published[later])
        world.until(lambda: world.archived(first) == world.published[first])
        # What is archived is counted a moment later.
        world.until(lambda: world.player.store.get(job.id).progress.messages == 100)
    assert world.player.store.get(job.id).state is JobState.WAITING


def test_now_begins_with_what_is_published_after_the_job_began(world: StoreWorld) -> None:
    world.create_stream(world.name)
    world.publish(world.name, 100)
    time.sleep(0.2)
    job = world.player.create("store", **fields(world, start="now"))
    with world.running(job):
        world.until(lambda: world.player.store.get(job.id).state is JobState.RUNNING)
        time.sleep(0.3)
        world.publish(world.name, 40)
        world.until(lambda: world.archived(world.name) == world.published[world.name][100:])
    assert world.player.store.get(job.id).cursor["starts"] == {world.name: 100}


def test_an_offset_begins_at_its_chunk_and_the_archive_says_why_nothing_is_before_it(world: StoreWorld) -> None:
    world.create_stream(world.name)
    for _ in range(5):
        world.publish(world.name, 20)
    job = world.player.run("store", **fields(world, start="50", end="100"))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert world.archived(world.name) == world.published[world.name][40:]
    assert [reason for reason in world.bus.lost if f"before the start of job {job.id}" in reason]
    assert job.skipped.count == 0


def test_a_time_ends_the_job_once_it_is_over(world: StoreWorld) -> None:
    world.create_stream(world.name)
    world.create_stream(f"{world.name}-empty")
    world.publish(world.name, 60)
    time.sleep(0.05)
    end = format_timestamp(now_ms())
    time.sleep(0.05)
    world.publish(world.name, 10)
    streams = [world.name, f"{world.name}-empty", f"{world.name}-not-there"]
    job = world.player.run("store", **fields(world, streams=streams, end=end))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert world.archived(world.name) == world.published[world.name][:60]


def test_a_time_ends_the_job_though_nothing_comes_after_it(world: StoreWorld) -> None:
    world.create_stream(world.name)
    world.publish(world.name, 60)
    time.sleep(0.05)
    job = world.player.run("store", **fields(world, end=format_timestamp(now_ms())))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert world.archived(world.name) == world.published[world.name]


def test_another_machine_goes_on_at_the_archives_tail_and_nothing_is_twice(world: StoreWorld) -> None:
    world.create_stream(world.name)
    job = world.player.create("store", **fields(world))
    for round_ in range(3):
        with world.running(job) as stops:
            world.publish(world.name, 200)
            if round_ == 1:
                world.until(lambda: len(world.archived(world.name)) > 200)
            stops.set()
        world.on_another_machine()
    with world.running(job):
        world.until(lambda: world.archived(world.name) == world.published[world.name])


def test_a_job_that_is_paused_edited_and_cancelled_does_so(world: StoreWorld) -> None:
    world.create_stream(world.name)
    world.publish(world.name, 50)
    store = world.player.store
    job = world.player.create("store", **fields(world))
    with world.running(job):
        world.until(lambda: len(world.archived(world.name)) == 50)
        store.pause(job.id)
        world.until(lambda: store.get(job.id).state is JobState.PAUSED)
    world.publish(world.name, 50)
    store.resume(job.id)
    with world.running(job):
        world.until(lambda: len(world.archived(world.name)) == 100)
        store.edit(job.id, {"rate": 1_000_000})
        world.publish(world.name, 50)
        world.until(lambda: len(world.archived(world.name)) == 150)
        store.edit(job.id, {"end": "200"})
        world.publish(world.name, 50)
        world.until(lambda: store.get(job.id).state is JobState.SUCCEEDED)
    assert world.archived(world.name) == world.published[world.name]


def test_what_retention_deletes_before_it_is_read_is_skipped_by_name(world: StoreWorld) -> None:
    name = world.name
    world.streams.create_stream(name, max_segment_bytes=100_000, max_length_bytes=200_000)
    world.streams.publish(name, [b"first"])
    job = world.player.create("store", **fields(world))
    with world.running(job):
        world.until(lambda: len(world.archived(name)) == 1)
    for _ in range(30):
        world.streams.publish(name, [bytes(2_000)] * 20)
    world.on_another_machine()
    with world.running(job):
        world.until(lambda: world.player.store.get(job.id).skipped.count > 0)
    skipped = world.player.store.get(job.id).skipped
    assert "deleted by retention" in skipped.named[0]
    assert name in skipped.named[0]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"broker": "far away"}, "'far away' is not known"),
        ({"max_lag": "1s"}, "max-lag"),
    ],
)
def test_what_cannot_be_stored_fails_and_says_why(world: StoreWorld, more: dict[str, str], why: str) -> None:
    job = world.player.run("store", **fields(world, **more))
    assert job.state is JobState.FAILED
    assert why in job.reason


def test_patterns_without_a_management_api_fail_and_say_what_to_give(world: StoreWorld) -> None:
    book = BrokerBook({"default": world.broker.stream_uri})
    world.player.tools = replace(world.player.tools, brokers=book)
    job = world.player.run("store", **fields(world, streams=["stored-*"]))
    assert job.state is JobState.FAILED
    assert "management API" in job.reason


def test_a_login_that_is_refused_fails_the_job_and_hides_the_password(world: StoreWorld) -> None:
    book = BrokerBook({"default": world.broker.stream_uri.replace("guest:guest", "guest:s3cret")})
    world.player.tools = replace(world.player.tools, brokers=book)
    job = world.player.run("store", **fields(world, max_attempts=1))
    assert job.state is JobState.FAILED
    assert "s3cret" not in job.reason


def test_a_directory_that_another_process_holds_is_left_to_it(world: StoreWorld) -> None:
    """A worker that was paused and goes on still has the directory when the job is taken over on its machine."""
    world.create_stream(world.name)
    world.publish(world.name, 30)
    job = world.player.create("store", **fields(world, end="30"))
    held = StateDirectory(world.root / "a" / job.id)
    with held.lock():
        assert world.player.attempt(job).state is JobState.SUCCEEDED
        assert held.lock_file.exists()
    assert world.archived(world.name) == world.published[world.name]


def test_the_kind_is_run_by_workers(world: StoreWorld) -> None:
    def kind(run: JobRun) -> RunEnd:
        return kinds_of(world.player.tools)[run.job.kind](run)

    world.create_stream(world.name)
    world.publish(world.name, 3)
    job = world.player.create("store", **fields(world, end="3"))
    assert world.player.attempt(job, kind=kind).state is JobState.SUCCEEDED
