"""Archives in memory with messages that a test names, and jobs on them that run in the test's own thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rstream import AMQPMessage, Properties

from coldstream.format.amqp.message import messages
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.writer import SegmentWriter
from coldstream.jobs.attempt import Kind, acquire, run_attempt
from coldstream.jobs.job import Job
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Epoch, Offset, TimestampMs, now_ms
from coldstream.worker.brokers import BrokerBook
from coldstream.worker.kinds import kinds_of
from coldstream.worker.tools import WorkerTools
from tests.support.segments import START, MemoryArchive

SECOND = 1000


def message(body: bytes, *, created: int | None = None, key: str | None = None) -> bytes:
    """Encode a message with a creation time and a key, if they are given."""
    return bytes(AMQPMessage(properties=Properties(creation_time=created, message_id=key), body=body))


@dataclass
class SampleArchive:
    """Streams in memory. `add` appends chunks to one, each of some messages at a time."""

    archive: MemoryArchive = field(default_factory=lambda: MemoryArchive(fragment_bytes=2_000))
    next_offsets: dict[str, Offset] = field(default_factory=dict)
    clock: Callable[[], TimestampMs] = now_ms

    @property
    def table(self) -> MemoryTable:
        return self.archive.table

    @property
    def objects(self) -> MemoryObjects:
        return self.archive.objects

    def stream(self, name: str) -> StreamId:
        number = 1_763_700_000_000_000_000 + sum(name.encode())
        return StreamId("/", name, Incarnation(f"__{re.sub('[^a-z0-9-]', '=', name)}_{number}"))

    def add(self, name: str, chunks: Sequence[tuple[int, Sequence[bytes]]], *, hole: int = 0) -> Offset:
        """Archive chunks, after so many offsets that never come; return the offset after the last."""
        first = Offset(self.next_offsets.get(name, Offset(0)) + hole)
        self.archive.stream = self.stream(name)
        with TemporaryDirectory() as made:
            directory = Path(made)
            with SegmentWriter(directory, max_segment_bytes=10**9, first_offset=first) as writer:
                for timestamp, bodies in chunks:
                    writer.write(list(bodies), timestamp=TimestampMs(timestamp), epoch=Epoch(1))
                after = writer.next_offset
            (directory / f"{after:020}.segment").write_bytes(SEGMENT_HEADER)  # so that the last one is rolled, too
            self.archive.announce(directory)
        self.next_offsets[name] = after
        return after

    def fill(self, name: str, count: int, *, at: int = START, every: int = 10) -> Offset:
        """Archive numbered messages, ten to a chunk, one chunk a second."""
        begun = int(self.next_offsets.get(name, 0))
        numbers = list(range(begun, begun + count))
        parts = [numbers[place : place + every] for place in range(0, count, every)]
        chunks = [
            (at + second * SECOND, [message(b"%d" % one, key=f"k{one}") for one in part])
            for second, part in enumerate(parts)
        ]
        return self.add(name, chunks)

    def raw(self, name: str, start: int = 0, end: int | None = None) -> dict[int, bytes]:
        """Return what is archived, by offset."""
        found: dict[int, bytes] = {}
        for step in plan_scan(self.table, self.stream(name), Offset(start), None if end is None else Offset(end)):
            if isinstance(step, ScanSlice):
                for chunk in read_slice(self.objects, step):
                    found |= {one.offset: one.raw for one in messages(chunk, source=step.key)}
        return {offset: raw for offset, raw in found.items() if offset >= start and (end is None or offset < end)}

    def tools(self, state: Path | None = None, brokers: BrokerBook | None = None) -> WorkerTools:
        return WorkerTools(
            self.table,
            self.objects,
            Keys("archive/"),
            brokers or BrokerBook(),
            state or Path("/nonexistent"),
            environment={},
            now=self.clock,
        )


class JobPlayer:
    """Creates jobs and runs attempts of them, as a worker would, one at a time."""

    def __init__(self, tools: WorkerTools) -> None:
        self.tools = tools
        self.store = JobStore(tools.table, tools.now)
        self.attempts = 0

    def create(self, kind: str, **fields: Any) -> Job:
        return self.store.create(parse_spec({"kind": kind, **fields}))

    def attempt(
        self, job: Job | str, *, worker_stops: Callable[[], bool] = lambda: False, kind: Kind | None = None
    ) -> Job:
        """Run one attempt of a job that is due, or whose worker is dead."""
        found = self.store.get(job if isinstance(job, str) else job.id)
        self.attempts += 1
        taken = acquire(
            self.store, found, f"worker-{self.attempts}", is_dead=found.lease is not None, now=self.tools.now
        )
        assert taken is not None, found
        run = kind or kinds_of(self.tools)[found.kind]
        ended = run_attempt(self.store, taken, run, worker_stops=worker_stops, now=self.tools.now, keep_every_s=0.05)
        assert ended is not None
        return ended

    def run(self, kind: str, **fields: Any) -> Job:
        return self.attempt(self.create(kind, **fields))


class WorkerDiedError(BaseException):
    """Stands for a SIGKILL: nothing of the attempt catches it, and nothing is written after it."""
