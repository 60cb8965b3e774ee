"""One stream's archive in memory, with everybody who writes to it, for schedules of `interleavings`.

The actors are the shipped code: the upload function's, compaction, retention, deletion, erasure, the sweep, garbage,
rebuild. Each request is a point at which another may go on, or at which its process ends. The clock is AWS's: it moves
when somebody waits. Hosts have clocks of their own, which are an hour off.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache

from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.errors import ConflictError, OutcomeUnknownError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.writer import make_chunk
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.change import Change
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.grace import grace_ms
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.memory.visibility import SeededVisibility
from coldstream.store.object_values import BucketCapabilities
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.interleavings import ANY_KEY, EVERYTHING, TABLE, Actor, Stage

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
INCARNATION = STREAM.incarnation
KEYS = Keys("archive/")
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
START = 1_763_700_000_000
NOW = TimestampMs(START + 100 * DAY_MS)
URL_EXPIRY_S = 3600
GRACE_MS = grace_ms(URL_EXPIRY_S)
HOST_AHEAD_MS = HOUR_MS
FRAGMENT_BYTES = 200
MESSAGES = 2
"""A chunk's. Two chunks make a fragment, four a segment."""

TRANSIENT = (ConflictError, OutcomeUnknownError, UnavailableError)
"""After these an event goes back to its queue, and a scheduled function runs again."""


@dataclass(frozen=True)
class WholeChunk:
    """A chunk of the stream, with all of its bytes."""

    header: ChunkHeader
    data: bytes


def secret(offset: int) -> bytes:
    return f"what alice said at {offset:04}".encode()


@cache
def chunks() -> tuple[WholeChunk, ...]:
    """Make the stream: eight chunks of two messages, five days apart; once the clock ran backwards."""
    made = []
    for number, days in enumerate((0, 5, 3, 15, 20, 25, 30, 35)):
        first = number * MESSAGES
        header, data = make_chunk(
            [secret(offset) for offset in range(first, first + MESSAGES)],
            chunk_id=ChunkId(first),
            timestamp=TimestampMs(START + days * DAY_MS),
            epoch=Epoch(1),
        )
        made.append(WholeChunk(header, data))
    return tuple(made)


def segment(first: int, following: int) -> bytes:
    """Make the slice of these offsets."""
    return SEGMENT_HEADER + b"".join(one.data for one in chunks() if first <= one.header.chunk_id < following)


class Table(MemoryTable):
    """Makes every request a point of the schedule."""

    def __init__(self, world: LifecycleWorld, visibility: SeededVisibility | None) -> None:
        super().__init__(visibility)
        self._world = world
        self._writer: Actor | None = None

    def apply(self, change: Change) -> None:
        super().apply(change)
        self._world.on_change(change)
        self._writer = self._world.stage.acting
        if self._world.stage.is_answer_lost():
            raise OutcomeUnknownError("no answer came")

    def settle(self) -> None:
        super().settle()
        self._world.settled = self._world.changes

    def _count(self, call: str) -> None:
        super()._count(call)
        self._world.stage.call(call, TABLE)
        self.settle_answered()
        if self._world.settles(0.2):
            self.settle()

    def settle_answered(self) -> None:
        """Show all of a transaction whose writer has its answer, as he goes on. Until then others may see half."""
        if self._writer is self._world.stage.acting:
            self.settle()


class Objects(MemoryObjects):
    """Makes every request a point of the schedule, and tells of each object that goes."""

    def __init__(self, world: LifecycleWorld, *, versioned: bool) -> None:
        super().__init__(clock=world.aws, versioned=versioned)
        self._world = world
        self._about: str | None = None

    def _count(self, call: str, times: int = 1) -> None:
        super()._count(call, times)
        about, self._about = self._about, None
        if call.startswith("GetBucket"):
            return
        self._world.stage.call(call, about or ANY_KEY)
        self._world.table.settle_answered()

    def _read(self, call: str, key: str, if_match: str | None, *, bytes_too: bool = True):
        self._about = key
        return super()._read(call, key, if_match, bytes_too=bytes_too)

    def put_new(self, key: str, *args, **options) -> None:
        self._about = key
        super().put_new(key, *args, **options)
        self._lose_answer(key)

    def put(self, key: str, body: bytes) -> None:
        self._about = key
        super().put(key, body)
        self._lose_answer(key)

    def delete_many(self, keys, **options):
        report = super().delete_many(keys, **options)
        self._lose_answer("DeleteObjects")
        return report

    def _lose_answer(self, what: str) -> None:
        if self._world.stage.is_answer_lost():
            raise UnavailableError(f"{what}: no answer came")

    def _remove(self, key: str) -> None:
        if key in self.objects:
            self._world.on_delete(key)
        super()._remove(key)

    def _drop(self, key: str, version_id: str) -> bool:
        if key in self.objects and self._version(key).version_id == version_id:
            self._world.on_delete(key)
        return super()._drop(key, version_id)


class Watcher:
    """Is told what happens. `lifecycle_model.Model` holds it against what has to be."""

    def changed(self, before: ManifestState, change: Change, after: ManifestState) -> None:
        """A transaction was written."""

    def deleted(self, key: str) -> None:
        """An object is about to be deleted."""

    def look(self) -> None:
        """A state was reached."""


class LifecycleWorld:
    """A stream of two fragments, offsets 0 to 8; an upload of the next segment died, and left its first object."""

    def __init__(self, *, weak: random.Random | None = None, versioned: bool = False) -> None:
        self.now = NOW
        self.host_ahead_ms: dict[str, int] = {}
        """What an actor's clock is ahead of AWS's. Only where a test says so, actors ask it instead of AWS's."""

        self.answered_holds: set[str] = set()
        """The holds that somebody was told are placed."""

        self.begun_erasures: set[str] = set()
        """The erasures of which somebody was told that they have begun."""

        self.changes = self.settled = 0
        """Changes so far, and those of them that show wholly, to everybody."""

        self._weak = weak
        self.watcher = Watcher()
        self.stage = Stage(self._look)
        self.table = Table(self, None if weak is None else SeededVisibility(weak.randrange(1 << 30)))
        self.objects = Objects(self, versioned=versioned)
        self.is_versioned = versioned
        self.before = ManifestState()
        self._is_new = True
        self._take(_base() if self._is_base_made() else None)

    @property
    def acting(self) -> Actor | None:
        """Return who makes the call that is being made."""
        return self.stage.acting

    def aws(self) -> TimestampMs:
        """Tell AWS's time."""
        return self.now

    def host(self) -> TimestampMs:
        """Tell the time of a host whose clock is wrong."""
        return TimestampMs(self.now + HOST_AHEAD_MS)

    def lifecycle_clock(self) -> TimestampMs:
        """Tell the time as retention, deletion, sweep and garbage know it."""
        actor = self.stage.acting
        return TimestampMs(self.now + (self.host_ahead_ms.get(actor.name, 0) if actor is not None else 0))

    @property
    def is_weak(self) -> bool:
        """Tell whether reads may show half of a transaction."""
        return self._weak is not None

    @property
    def state(self) -> ManifestState:
        """All that was written."""
        return self.table._partitions.get(INCARNATION, ManifestState())

    @property
    def stores(self) -> LifecycleStores:
        return LifecycleStores(
            table=self.table,
            objects=self.objects,
            keys=KEYS,
            control=ControlObjects(self.objects, KEYS),
            bucket=BucketCapabilities(versioned=self.is_versioned, object_lock=False),
            now=self.lifecycle_clock,
            grace_ms=GRACE_MS,
        )

    @property
    def uploader(self) -> Uploader:
        """The upload function; it has only its host's clock."""
        return Uploader(self.table, self.objects, KEYS, FRAGMENT_BYTES, now=self.host)

    def add(self, name: str, work: Callable[[], None]) -> None:
        """Put an actor on the stage."""
        self.stage.add(name, work, TRANSIENT)

    def wait(self, ms: int) -> None:
        """Let time pass, for all."""
        self.stage.call("Wait", EVERYTHING)
        self.now = TimestampMs(self.now + ms)
        self.table.settle()  # nothing is being written for so long

    def stage_segment(self, first: int, following: int) -> SegmentRolled:
        """Stage a slice, and return its event."""
        data = segment(first, following)
        key = KEYS.staged(INCARNATION, Offset(first), Offset(following))
        self.objects.objects[key] = data
        info = self.objects.info(key)
        assert info is not None
        return SegmentRolled(
            STREAM, Offset(first), Offset(following), len(data), self.objects.bucket, key, etag=info.etag
        )

    def settles(self, chance: float) -> bool:
        """Tell whether all that was written shows now."""
        return self._weak is None or self._weak.random() < chance

    def on_change(self, change: Change) -> None:
        before, self.before, self._is_new = self.before, self.state, True
        self.changes += 1
        self.watcher.changed(before, change, self.state)

    def on_delete(self, key: str) -> None:
        self._is_new = True
        self.watcher.deleted(key)

    def _look(self) -> None:
        if not self._is_new:
            return
        self._is_new = False
        with self.unseen():
            self.watcher.look()

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Look at the stores without taking part in the schedule."""
        acting, self.stage.acting = self.stage.acting, None
        try:
            yield
        finally:
            self.stage.acting = acting

    def _is_base_made(self) -> bool:
        return not _MAKING

    def _take(self, base: LifecycleWorld | None) -> None:
        """Begin with what another world has."""
        if base is None:
            return
        self.before = base.state
        self.table._partitions = dict(base.table._partitions)
        self.table._recorded = {key: dict(value) for key, value in base.table._recorded.items()}
        self.table._registry = dict(base.table._registry)
        self.table._newest = dict(base.table._newest)
        self.table._clusters = dict(base.table._clusters)
        self.objects.objects = dict(base.objects.objects)
        self.objects._latest = copy(base.objects._latest)


_MAKING: list[None] = []


@cache
def _base() -> LifecycleWorld:
    _MAKING.append(None)
    world = LifecycleWorld()
    world.uploader.upload(world.stage_segment(0, 8))
    other = LifecycleWorld()
    other.uploader.upload(other.stage_segment(0, 8))
    other.uploader.upload(other.stage_segment(8, 16))
    orphan = KEYS.fragment(INCARNATION, Offset(8))
    found = other.objects._version(orphan)
    world.objects._write(orphan, found.data or b"", note=found.note)
    _MAKING.clear()
    return world
