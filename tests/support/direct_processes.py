"""Processes that append to direct streams, recover what others left, flush, trim and die, one request at a time.

Each is the real recovery, flush, seal and trim over a bucket and a table in memory, around the simplest appender there
is: one batch an object, one object at a time. All are actors of `interleavings`, so a schedule replays a failure.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pytest

from coldstream.errors import (
    ColdstreamError,
    ExpiredEpochError,
    ObjectExistsError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    StreamNotFoundError,
    UnavailableError,
    WalEndedError,
)
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.format.tracking import TrackingRecord, TrackingType, iter_tracking
from coldstream.garbage.kinds import DAY_MS
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.appending import plan_create
from coldstream.manifest.change import Change
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.wal_object import FIXED_BYTES, WalChunk, kind_and_nonce, wal_object
from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import Batch, tracking_chunk
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import flush_chunks
from coldstream.streams.open_stream import OpenStream
from coldstream.streams.opening import end_opening, take_epoch
from coldstream.streams.publishers import Publishers
from coldstream.streams.recovery import recover
from coldstream.streams.trimming import trim_stream
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import _reserve
from coldstream.streams.wals import Wals
from coldstream.units import ByteRange, Epoch, Offset, TimestampMs
from tests.support.compacting import Inline
from tests.support.flushing import archived
from tests.support.interleavings import TABLE, Fate, Schedule, Stage, Step

STREAMS = tuple(StreamId("/", name, Incarnation(f"__{name}_1763700000000000000")) for name in ("one", "two"))
PUBLISHERS = (b"p", b"q", b"r")
SMALL = 200
"""Bytes of a fragment: a batch or two."""

REACH = 4
KEPT = 8
"""The bounds of `wal_window`, so small that few objects reach them."""

TRANSIENT = (UnavailableError, ExpiredEpochError, WalEndedError)


class LoudTable(MemoryTable):
    """Makes every request a point of the schedule."""

    def __init__(self, world: DirectWorld) -> None:
        super().__init__()
        self._world = world

    def _count(self, call: str) -> None:
        super()._count(call)
        self._world.stage.call(call, TABLE)

    def apply(self, change: Change) -> None:
        super().apply(change)
        if self._world.stage.is_answer_lost():
            raise OutcomeUnknownError("no answer came")


class LoudObjects(MemoryObjects):
    """Makes every request a point of the schedule."""

    def __init__(self, world: DirectWorld) -> None:
        super().__init__(clock=world.now)
        self._world = world

    def _count(self, call: str, times: int = 1) -> None:
        super()._count(call, times)
        self._world.stage.call(call, "*")

    def put_new(self, key: str, body: BinaryIO, **options: Any) -> None:
        super().put_new(key, body, **options)
        if self._world.stage.is_answer_lost():
            raise UnavailableError(f"PUT {key}: no answer came")


@dataclass
class DirectWorld:
    """Two streams, and what was promised of them: bodies by stream, with whether each was acknowledged."""

    seed: int
    stage: Stage = field(init=False)
    at: int = 1_763_700_000_000
    acknowledged: list[tuple[StreamId, Offset, bytes]] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    trimmed: dict[StreamId, Offset] = field(default_factory=dict)
    processes: int = 0

    def __post_init__(self) -> None:
        self.stage = Stage()
        self.table, self.objects = LoudTable(self), LoudObjects(self)
        self.archive = DirectArchive(self.table, self.objects, Keys("a/"), self.now)
        self.store = S3WalStore(self.objects, self.archive.keys)
        for stream in STREAMS:
            self.archive.control.write_stream(stream)
            self.table.apply(plan_create(stream, self.now(), first=Offset(0), properties={}))

    def now(self) -> TimestampMs:
        self.at += 1
        return TimestampMs(self.at)

    def process(self, name: str) -> None:
        """Play the life of one process, from its start to a clean end, or to what ends it."""
        self.processes += 1
        Process(self, name, random.Random(self.seed * 1000 + self.processes)).live()

    def collect(self) -> None:
        """Delete what is garbage, by a clock by which everything is old: ages protect nobody."""
        GarbageCollector(self.table, self.objects, self.archive.keys, lambda: TimestampMs(self.at + 100 * DAY_MS)).run(
            GarbageOptions(delete=True)
        )

    def judge(self) -> None:
        """Open every stream once more, and compare what is there with what was promised."""
        last = Process(self, "judge", random.Random(self.seed))
        for stream in STREAMS:
            state = last.open(stream)
            bodies = [(at, body) for at, body, _ in history(self.archive, stream)]
            found = [body for _, body in bodies]
            assert len(found) == len(set(found)), f"{stream} has a batch twice: {found}"
            start = self.trimmed.get(stream, Offset(0))
            for of, at, body in self.acknowledged:
                if of == stream and at >= start:
                    assert (at, body) in bodies, f"{body!r} was acknowledged at {at} and is lost; {found}"
            assert not set(self.refused) & set(found), "what was refused is there"
            known = Publishers() if state.publishers is None else state.publishers
            for publisher in PUBLISHERS:
                ids = [one.value for _, _, one in history(self.archive, stream) if one.id == publisher]
                if ids:
                    assert ids == list(range(ids[0], ids[0] + len(ids))), f"{publisher!r} was forgotten: {ids}"
                    assert known.last_of(publisher) == ids[-1]


def history(archive: DirectArchive, stream: StreamId) -> list[tuple[Offset, bytes, TrackingRecord]]:
    """Return offset, body and trailer of each batch in the archive."""
    found = []
    for data in archived(archive, stream):
        (chunk,) = iter_chunks(data, source="archive")
        match = re.search(rb"<([a-z]+\.\d+\.[a-z]+\.\d+)>", data)
        if chunk.header.type is ChunkType.USER:
            assert match is not None
            (record,) = iter_tracking(chunk, source="archive")
            found.append((Offset(chunk.header.chunk_id), match[1], record))
    return found


@dataclass
class _Open:
    """A stream that a process has open."""

    state: OpenStream
    publishers: Publishers
    next: Offset
    pinned: list[CachedChunk] = field(default_factory=list)
    flushed: Offset = Offset(0)  # noqa: RUF009

    @property
    def epoch(self) -> Epoch:
        return self.state.epoch


class Process:
    """One process. It ends with WalEndedError or ExpiredEpochError once another has taken what it had."""

    def __init__(self, world: DirectWorld, name: str, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.archive, self.store = world.archive, world.store
        self.wals = Wals({WalKind.S3: world.store})
        self.place: WalPlace = _reserve(self.store, name, WalOptions(attempts=3))
        self.wals.begin(self.place)
        self.next = 1
        self.objects: list[tuple[int, StreamId, Offset]] = [(0, STREAMS[0], Offset(0))]
        self.opened: dict[StreamId, _Open] = {}

    def live(self) -> None:
        for stream in self.dice.sample(STREAMS, self.dice.randint(1, 2)):
            self.open(stream)
        for _ in range(self.dice.randint(1, 5)):
            stream = self.dice.choice(list(self.opened))
            for _ in range(self.dice.randint(0, 6)):
                self.append(stream)
            if self.dice.random() < 0.6:
                self.flush(stream)
            if self.dice.random() < 0.15:
                self.trim(stream)
        if self.dice.random() < 0.4:
            self.close()

    def open(self, stream: StreamId) -> OpenStream:
        """Open a stream, and recover it."""
        head = take_epoch(self.archive, stream, self.place)
        state = recover(self.archive, self.wals, head, SMALL)
        publishers = Publishers() if state.publishers is None else state.publishers.copy()
        self.opened[stream] = _Open(state, publishers, state.tail, flushed=state.tail)
        return state

    def append(self, stream: StreamId) -> None:
        """Append one batch of a publisher, which goes on where it is known to be."""
        one = self.opened[stream]
        publisher = self.dice.choice(PUBLISHERS)
        record = TrackingRecord(TrackingType.SEQUENCE, publisher, (one.publishers.last_of(publisher) or 0) + 1)
        body = b"%s.%d.%s.%d" % (self.place.writer.encode(), self.place.epoch, stream.name.encode(), self.next)
        at = one.next
        data = Batch.of([b"<%s>" % body]).chunk(at, self.world.now(), one.epoch, record.to_bytes())
        try:
            self._put(stream, data, at, Offset(at + 1))
        except WalEndedError:
            self.world.refused.append(body)
            raise
        one.publishers.sent(record, at)
        self.world.acknowledged.append((stream, at, body))

    def flush(self, stream: StreamId) -> None:
        """Append a snapshot, and archive everything up to it; then trim the log."""
        one = self.opened[stream]
        if not one.pinned:
            return
        if not one.publishers.state.is_empty:
            data = tracking_chunk(one.publishers.snapshot(), one.next, self.world.now(), one.epoch)
            self._put(stream, data, one.next, Offset(one.next + 1))
        one.flushed = flush_chunks(self.archive, stream, list(one.pinned), SMALL)
        one.pinned.clear()
        self._trim_log()

    def trim(self, stream: StreamId) -> None:
        """Trim a stream up to somewhere in what is archived."""
        one = self.opened[stream]
        to = Offset(self.dice.randint(0, one.flushed))
        self.world.trimmed[stream] = max(to, self.world.trimmed.get(stream, to))
        stores = LifecycleStores.open(
            self.archive.table, self.archive.objects, self.archive.keys, grace_ms=LONGEST_GRACE_MS
        )
        trim_stream(self.archive, stores, stream, one.epoch, to)

    def close(self) -> None:
        """Flush and close all streams, then delete the log."""
        for stream, one in self.opened.items():
            self.flush(stream)
            end_opening(self.archive, stream, one.epoch, is_sealed=False)
        self.store.delete(self.place, range(self.next))

    def _put(self, stream: StreamId, data: bytes, first: Offset, following: Offset) -> None:
        one = self.opened[stream]
        nonce = os.urandom(16)
        body = wal_object(nonce, [WalChunk(stream.incarnation, one.epoch, first, following, data)])
        if not self._create(body, nonce):
            raise WalEndedError(str(self.place), self.next)
        self.objects.append((self.next, stream, following))
        self.next += 1
        one.next = following
        one.pinned.append(CachedChunk(first, following, TimestampMs(self.world.at), one.epoch, data))

    def _create(self, body: bytes, nonce: bytes) -> bool:
        """Create the next object as the writer does: again, then by a seal of its own."""
        for _ in range(2):
            try:
                self.store.create(self.place, self.next, body)
            except ObjectExistsError:
                try:
                    view = self.store.read(self.place, self.next, ByteRange(0, FIXED_BYTES))
                except ObjectNotFoundError:
                    continue
                return kind_and_nonce(view, source="there")[1] == nonce
            except UnavailableError:
                if self.dice.random() < 0.5:
                    break
                continue
            return True
        return self.next < seal(self.store, self.place)

    def _trim_log(self) -> None:
        needless = []
        for sequence, stream, following in self.objects:
            if sequence >= self.next - KEPT or following > self.opened.get(stream, _NONE).flushed:
                break
            needless.append(sequence)
        if needless:
            self.store.delete(self.place, needless)
            self.objects = self.objects[len(needless) :]


_NONE = _Open(OpenStream(STREAMS[0], Epoch(0), {}, Offset(0), Offset(0), TimestampMs(0)), Publishers(), Offset(0))


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Have no delays, and each process do one thing at a time: the schedule alone decides."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: None)
        for module in ("streams.wal.reader", "streams.wal.seal", "lifecycle.deletes"):
            patch.setattr(f"coldstream.{module}.ThreadPoolExecutor", Inline)
        patch.setattr("coldstream.streams.wal.seal.REACH", REACH)
        patch.setattr("coldstream.store.wal_window.REACH", REACH)
        patch.setattr("coldstream.garbage.write_ahead_logs.REACH", REACH)
        yield


def random_schedule(dice: random.Random, actors: list[str]) -> Schedule:
    """Return steps of random lengths and ends: some long, so that somebody comes far, some short, where races are."""
    steps = []
    for _ in range(dice.randint(2, 14)):
        calls = dice.choice([dice.randint(1, 6), dice.randint(1, 40), dice.randint(20, 200)])
        fate = dice.choice([Fate.WAITS, Fate.WAITS, Fate.WAITS, Fate.DIES, Fate.HEARS_NOTHING])
        steps.append(Step(dice.choice(actors), calls, fate))
    return Schedule(tuple(steps))


def quietly(work: Any) -> None:
    """Let a process end of what ends processes."""
    try:
        work()
    except (ExpiredEpochError, WalEndedError, StreamNotFoundError):
        pass
    except ColdstreamError as err:
        if not isinstance(err, UnavailableError):
            raise
