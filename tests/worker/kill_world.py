"""Jobs on a real broker while their workers die: two worker processes, killed and paused at random, and what is left.

    published ──▶ store job ──▶ archive ──▶ load jobs that follow ──▶ stream, super stream, table, exchange
                                        └─▶ loads and exports that end, one after another, each to a target of its own

At the end everything that was published is in the archive, and in each target, once and in order; in the exchange's
queue, where nobody can tell, at least once.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pika

from coldstream.errors import UnavailableError
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.specs import JobSpec, parse_spec
from coldstream.jobs.store import Change, JobStore
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.retry import retrying
from coldstream.store.open_archive import OpenArchive
from coldstream.store.streams import newest
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.server import ROOT
from tests.worker.samples import message

SOURCES = ("live-0", "live-1")
WORKERS = 2
LEASE_S = 2.0
PAUSE_S = (3.0, 5.0)
"""Of a worker that is stopped and goes on later: longer than its lease, and what others wait after it."""

SETTLES_WITHIN_S = 240.0
PARTITIONS = 2
QUEUE = "queue of loads"
KEYS = 50


@dataclass
class KillFigures:
    """What happened."""

    kills: int = 0
    at_work: int = 0
    pauses: int = 0
    asked: int = 0
    published: int = 0
    rounds: int = 0
    doubled_in_queue: int = 0
    takeovers: int = 0
    seconds: float = 0.0

    def text(self) -> str:
        return (
            f"{self.kills} kills, {self.at_work} of workers that had jobs; {self.pauses} workers stopped and continued"
            f" after others took over; {self.asked} jobs paused and resumed; {self.takeovers} times a job taken;"
            f" {self.published} messages published: all are in the archive, the stream, the super stream and the table,"
            f" once and in order; {self.doubled_in_queue} came to the queue again; {self.rounds} loads and exports that"
            f" ended, all exact; {self.seconds:.0f} s"
        )


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, environment: dict[str, str], state: Path, log: Path) -> None:
        command = [sys.executable, "-m", "coldstream", "worker", "--concurrency", "8", "--lease", f"{LEASE_S:g}s"]
        command += ["--poll", "300ms", "--state", str(state)]
        self._log, self._log_from = log, log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    def has_taken_a_job(self) -> bool:
        with self._log.open("rb") as file:
            file.seek(self._log_from)
            return any(b'"message": "job ' in line and b" begins" in line for line in file)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Publisher:
    """Publishes numbered messages to the sources, and keeps what was confirmed, in a thread."""

    def __init__(self, broker: Broker) -> None:
        self.published: dict[str, list[bytes]] = {name: [] for name in SOURCES}
        self._broker = broker
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="publisher")
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _publish(self) -> None:
        try:
            with self._broker.connect() as streams:
                while not self._stopped.wait(0.15):
                    for name, known in self.published.items():
                        begun = len(known)
                        bodies = [
                            message(b"%s %d" % (name.encode(), number), key=f"k{number % KEYS}")
                            for number in range(begun, begun + 10)
                        ]
                        streams.publish(name, bodies)
                        known.extend(bodies)
        except BaseException as err:  # noqa: BLE001  told by whoever waits
            self.failure = err


class PatientJobs(JobStore):
    """Jobs as the test sees them: it does not give up when the emulated table, which is slow, is late."""

    def get(self, job_id: str) -> Job:
        calls = retrying(UnavailableError, attempts=20, first_delay_s=0.2, max_delay_s=2.0)
        return calls(lambda: super(PatientJobs, self).get(job_id))

    def create(self, spec: JobSpec, **more: Any) -> Job:
        key = secrets.token_hex(8)
        calls = retrying(UnavailableError, attempts=20, first_delay_s=0.2, max_delay_s=2.0)
        return calls(lambda: super(PatientJobs, self).create(spec, **{"idempotency_key": key, **more}))

    def update(self, job_id: str, change: Change, *, say: str = "") -> Job:
        calls = retrying(UnavailableError, attempts=20, first_delay_s=0.2, max_delay_s=2.0)
        return calls(lambda: super(PatientJobs, self).update(job_id, change, say=say))


@dataclass(frozen=True)
class Round:
    """A job that ends: the offsets of a source before `end`, to the target `name`."""

    job: Job
    source: str
    name: str
    end: int


@dataclass
class KillWorld:
    """A context manager: broker, emulated AWS with its functions, streams, jobs and workers."""

    directory: Path
    seed: int
    figures: KillFigures = field(default_factory=KillFigures)
    rounds: dict[str, Round] = field(default_factory=dict)

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._open(opening)
            self._exit = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _open(self, opening: ExitStack) -> None:
        self.rng = random.Random(self.seed)
        self.stack = opening.enter_context(
            EmulatedStack(log=opening.enter_context((self.directory / "functions.log").open("w")))
        )
        self.broker = opening.enter_context(Broker(management=True))
        self.environment = {
            **os.environ,
            **self.stack.environment,
            "COLDSTREAM_BROKER": self.broker.stream_uri,
            "COLDSTREAM_AMQP_BROKER": f"amqp://guest:guest@{self.broker.host}:{self.broker.amqp_port}/%2F",
            "COLDSTREAM_MANAGEMENT": self.broker.management_url,
            "PYTHONPATH": f"{ROOT / 'layers/coldstream/python'}:{ROOT}",
        }
        opening.enter_context(patch.dict(os.environ, self.environment))
        self.archive = OpenArchive.of_environment(self.environment)
        self.jobs = PatientJobs(self.archive.table)
        with self.broker.connect() as streams:
            for name in (*SOURCES, "all"):
                streams.create_stream(name, max_segment_bytes=1_000_000)
        self._declare_super_stream()
        parameters = pika.ConnectionParameters(self.broker.host, self.broker.amqp_port)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE)
            channel.exchange_declare(QUEUE, "fanout")
            channel.queue_bind(QUEUE, QUEUE)
        self.publisher = opening.enter_context(Publisher(self.broker))
        self.long = self._create_long_jobs()
        self.workers: list[WorkerProcess] = []
        opening.callback(self._end_workers)
        for number in range(WORKERS):
            self.workers.append(self._start(number))

    def _declare_super_stream(self) -> None:
        names = ", ".join(f'<<"super-{number}">>' for number in range(PARTITIONS))
        keys = ", ".join(f'<<"{number}">>' for number in range(PARTITIONS))
        arguments = f'<<"/">>, <<"super">>, [{names}], #{{}}, [{keys}], <<"guest">>'
        self.broker.ctl("eval", f"rabbit_stream_manager:create_super_stream({arguments}).")

    def _create_long_jobs(self) -> list[Job]:
        follow = {"kind": "load", "streams": ["live-*"], "follow": True, "poll_interval": "4s", "max_attempts": 100}
        table = {"type": "table", "path": str(self.directory / "table"), "format": "jsonl", "partition_by": "none"}
        store = {"kind": "store", "streams": ["live-*"], "max_lag": "6s", "poll_interval": "2s", "max_attempts": 100}
        return [
            self._create(store),
            self._create({**follow, "target": {"type": "stream", "name": "all"}}),
            self._create({**follow, "target": {"type": "super_stream", "name": "super"}}),
            self._create({**follow, "target": table}),
            self._create({**follow, "target": {"type": "exchange", "name": QUEUE}}),
        ]

    def _create(self, spec: dict[str, Any]) -> Job:
        return self.jobs.create(parse_spec(spec), by="the test")

    def _start(self, number: int) -> WorkerProcess:
        # Some have a directory that earlier workers had, and some a fresh one, as on another machine.
        state = self.directory / f"state-{number}-{self.rng.randrange(3)}"
        return WorkerProcess(self.environment, state, self.directory / f"worker-{number}.log")

    def _end_workers(self) -> None:
        for worker in self.workers:
            worker.kill()

    def kill_often(self, kills: int) -> None:
        """Kill workers at random so often, each of which is replaced at once; meanwhile ask jobs to pause, too."""
        began = time.monotonic()
        while self.figures.kills < kills:
            number = self.rng.randrange(WORKERS)
            # Now and then one that has just begun; else one that is at work.
            if self.rng.random() < 0.85:
                self._await_work(number)
            time.sleep(self.rng.uniform(0, 2.0))
            self.figures.at_work += self.workers[number].has_taken_a_job()
            if self.rng.random() < 0.15:
                self._pause_worker(number)
            if self.rng.random() < 0.2:
                self._pause_job()
            self.workers[number].kill()
            self.figures.kills += 1
            self.workers[number] = self._start(number)
            self.stack.check()
            for kind in ("load", "export"):
                if kind not in self.rounds or self._is_exact(kind):
                    self._begin_round(kind)
        self.publisher.stop()
        assert self.publisher.failure is None, self.publisher.failure
        self._judge()
        self.figures.takeovers = sum(self.jobs.get(job.id).epoch for job in self.long)
        self.figures.seconds = time.monotonic() - began

    def _await_work(self, number: int) -> None:
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while not self.workers[number].has_taken_a_job():
            assert time.monotonic() < deadline, "a worker takes no job"
            time.sleep(0.05)

    def _pause_worker(self, number: int) -> None:
        """Stop a worker until others have its jobs, and let it go on for a moment: it must do no harm."""
        process = self.workers[number].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(*PAUSE_S))
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        self.figures.pauses += 1

    def _pause_job(self) -> None:
        job = self.rng.choice(self.long)
        self.jobs.pause(job.id)
        time.sleep(self.rng.uniform(0, 1))
        self.jobs.resume(job.id)
        self.figures.asked += 1

    def _begin_round(self, kind: str) -> None:
        """Have what is archived of a source loaded or exported, to a target of its own."""
        source = self.rng.choice(SOURCES)
        try:
            stream = newest(self.archive.table, "/", source)
            head = None if stream is None else self.archive.table.head(stream.incarnation)
        except UnavailableError:
            return
        if head is None or not head.next_offset:
            return
        end, name = int(head.next_offset), f"round-{self.figures.rounds}"
        self.figures.rounds += 1
        spec: dict[str, Any] = {"kind": kind, "streams": [source], "end": str(end), "max_attempts": 100}
        if kind == "load":
            with self.broker.connect() as streams:
                streams.create_stream(name, max_segment_bytes=1_000_000)
            spec |= {"target": {"type": "stream", "name": name}, "rate": max(50, end // 3)}
        else:
            spec |= {"destination": str(self.directory / name), "format": "segments"}
        self.rounds[kind] = Round(self._create(spec), source, name, end)

    def _is_exact(self, kind: str) -> bool:
        """Return whether a round has ended; if so, hold it against what was published."""
        one = self.rounds[kind]
        found = self.jobs.get(one.job.id)
        if not found.state.has_ended:
            return False
        assert found.state is JobState.SUCCEEDED, found.reason
        expected = self.publisher.published[one.source][: one.end]
        if kind == "load":
            got = read_segments(self.broker.stream_directory(one.name))
        else:
            # Beside it may be the spool of a worker that was killed.
            (directory,) = (self.directory / one.name).glob("__*")
            got = read_segments(directory)[: one.end]  # whole chunks: the last may have more
        assert got == expected, f"{kind} {one.name} of {one.source}: {len(got)} messages, not {len(expected)}"
        del self.rounds[kind]
        return True

    def _judge(self) -> None:
        """Wait until all has come to where it belongs, and hold it against what was published."""
        published = self.publisher.published
        total = sum(map(len, published.values()))
        self._until(lambda: [self._is_exact(kind) for kind in list(self.rounds)], lambda _: not self.rounds)
        self.figures.published = total
        self._until(lambda: {name: self._archived(name) for name in SOURCES}, lambda now: now == published)
        self._until(lambda: self._by_source(self._rows()), lambda now: _count(now) >= total)
        assert self._by_source(self._rows()) == published
        self._until(self._loaded_to, lambda now: all(reached >= total for reached in now.values()))
        everything = read_segments(self.broker.stream_directory("all"))
        assert _by_source(everything) == published
        directories = [self.broker.stream_directory(f"super-{number}") for number in range(PARTITIONS)]
        partitions = [read_segments(directory) for directory in directories]
        self._check_super_stream(partitions, published)
        queued = Counter(self._drain())
        expected = {body for bodies in published.values() for body in bodies}
        assert queued.keys() == {_body(one) for one in expected}
        self.figures.doubled_in_queue = sum(queued.values()) - len(queued)
        for job in self.long:
            found = self.jobs.get(job.id)
            assert found.skipped.count == 0, found.skipped
            assert not found.state.has_ended, found.reason
            self.jobs.cancel(job.id)
        self._until(
            lambda: {job.id: self.jobs.get(job.id).state for job in self.long},
            lambda now: set(now.values()) == {JobState.CANCELLED},
        )

    def _loaded_to(self) -> dict[str, int]:
        return {job.id: self.jobs.get(job.id).progress.done for job in self.long[1:]}

    def _check_super_stream(self, partitions: list[list[bytes]], published: dict[str, list[bytes]]) -> None:
        together = [raw for one in partitions for raw in one]
        assert Counter(together) == Counter(raw for bodies in published.values() for raw in bodies)
        for one in partitions:
            for bodies in _by_source(one).values():
                numbers = [int(_body(raw).split()[1]) for raw in bodies]
                assert numbers == sorted(numbers)

    def _until(self, look: Callable[[], Any], is_there: Callable[[Any], bool]) -> None:
        deadline = time.monotonic() + SETTLES_WITHIN_S
        found: Any = None
        while time.monotonic() < deadline:
            try:
                found = look()
            except UnavailableError:
                continue
            if is_there(found):
                return
            time.sleep(1)
        raise AssertionError(f"not there: {str(found)[-1500:]}; {self._states()}")

    def _states(self) -> list[str]:
        found = [self.jobs.get(job.id) for job in self.long]
        return [f"{job.kind} {job.state} {job.reason} {job.progress} {job.skipped}" for job in found]

    def _archived(self, name: str) -> list[bytes]:
        stream = newest(self.archive.table, "/", name)
        return [] if stream is None else self._read_archive(stream)

    def _read_archive(self, stream: StreamId) -> list[bytes]:
        found: list[bytes] = []
        for step in plan_scan(self.archive.table, stream, Offset(0)):
            assert isinstance(step, ScanSlice), step
            for chunk in read_slice(self.archive.objects, step):
                found += [one.raw for one in messages(chunk, source=step.key)]
        return found

    def _rows(self) -> list[bytes]:
        """Return the rows of the table in the order of their offsets, as messages; one that is there twice is twice."""
        rows = []
        for path in (self.directory / "table").glob("*.jsonl"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                rows.append((row["stream"], row["offset"]))
        rows.sort()
        return [b"%s %d" % (name.encode(), offset) for name, offset in rows]

    def _by_source(self, rows: list[bytes]) -> dict[str, list[bytes]]:
        """Return rows as the messages that they are of: a source's offset is the number of its message."""
        found: dict[str, list[bytes]] = {name: [] for name in SOURCES}
        for row in rows:
            name, number = row.decode().split()
            published = self.publisher.published[name]
            found[name].append(published[int(number)])
        return found

    def _drain(self) -> list[bytes]:
        found: list[bytes] = []
        parameters = pika.ConnectionParameters(self.broker.host, self.broker.amqp_port)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            for method, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=2):
                if method is None:
                    break
                found.append(body)
        return found


def read_segments(directory: Path) -> list[bytes]:
    """Return every message of a directory of segments, as the broker or an export has written them."""
    found: list[bytes] = []
    for path in sorted(directory.glob("*.segment")):
        data = path.read_bytes()[SEGMENT_HEADER_BYTES:]
        for chunk in iter_chunks(data, source=str(path), position=SEGMENT_HEADER_BYTES):
            found += [one.raw for one in messages(chunk, source=str(path))]
    return found


def _body(raw: bytes) -> bytes:
    """Return the body of one of our messages: it is the last section, after a size of one byte."""
    at = raw.rindex(b"live-")
    return raw[at:]


def _by_source(found: list[bytes]) -> dict[str, list[bytes]]:
    sources: dict[str, list[bytes]] = {name: [] for name in SOURCES}
    for raw in found:
        sources[_body(raw).split()[0].decode()].append(raw)
    return sources


def _count(found: dict[str, list[bytes]]) -> int:
    return sum(map(len, found.values()))
