"""The appenders of a direct stream: each opens it, recovers what others left, appends, flushes and closes.

Recovery, flush, seal, trim and close are the shipped code, around the simplest appender there is: one batch an object
of its write-ahead log, one object at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from coldstream.errors import (
    ContradictionError,
    ExpiredEpochError,
    HeldError,
    NotClosedError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
    UnavailableError,
    WalEndedError,
)
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.appending import plan_create
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.direct_notes import DirectNote
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.wal_object import WalChunk, wal_object
from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import Batch
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import flush_chunks
from coldstream.streams.opening import end_opening, take_epoch
from coldstream.streams.recovery import recover
from coldstream.streams.trimming import trim_stream
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import _create_own, _reserve
from coldstream.streams.wals import Wals
from coldstream.units import Epoch, Offset, TimestampMs
from tests.explore.base import DAY_MS, HOUR_MS, NOW
from tests.explore.bucket_store import BucketState
from tests.explore.machine import BUCKET, LOG, TOLD, Machine, State, Told, Violation
from tests.explore.names_store import NamesState
from tests.explore.runs import Role
from tests.explore.site import Site
from tests.explore.world import Faults, World
from tests.support.flushing import archived

STREAM = StreamId("/", "one", Incarnation("__one_1763700000000000000"))
KEYS = Keys("a/")
SMALL = 200
"""Bytes of a fragment: a batch or two."""

ENDS = (ExpiredEpochError, WalEndedError, StreamNotFoundError, StreamDeletedError, StreamClosedError)
"""With these a process learns that another has taken what it had."""


@dataclass
class Appender:
    """One process. Raises what is in ENDS once another has taken what it had."""

    site: Site
    name: str
    archive: DirectArchive = field(init=False)
    place: WalPlace = field(init=False)
    epoch: Epoch = Epoch(0)  # noqa: RUF009  a NewType is its value
    at: Offset = Offset(0)  # noqa: RUF009
    sequence: int = 1
    pinned: list[CachedChunk] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.archive = DirectArchive(self.site.table, self.site.objects, KEYS, self.site.clock)
        self.store = S3WalStore(self.site.objects, KEYS)
        self.wals = Wals({WalKind.S3: self.store})
        self.place = _reserve(self.store, self.name, WalOptions(attempts=2))
        self.wals.begin(self.place)

    def open(self) -> None:
        """Open the stream, and recover it."""
        head = take_epoch(self.archive, STREAM, self.place)
        state = recover(self.archive, self.wals, head, SMALL)
        self.epoch, self.at = state.epoch, state.tail

    def append(self) -> None:
        """Append a batch, and say that it is acknowledged, or that it never will be."""
        body = f"{self.name}.{self.epoch}.{self.sequence}"  # an opening has an epoch of its own
        data = Batch.of([f"<{body}>".encode()]).chunk(self.at, self.site.clock(), self.epoch, b"")
        following = Offset(self.at + 1)
        nonce = self.site.name().encode().ljust(16, b".")
        chunk = WalChunk(STREAM.incarnation, self.epoch, self.at, following, data)
        if not self._create(wal_object(nonce, [chunk]), nonce):
            self.site.tell("refused", body)
            raise WalEndedError(str(self.place), self.sequence)
        self.site.tell("acknowledged", f"{self.at} {body}")
        self.pinned.append(CachedChunk(self.at, following, TimestampMs(NOW), self.epoch, data))
        self.at, self.sequence = following, self.sequence + 1

    def flush(self) -> None:
        """Archive all of it."""
        if self.pinned:
            flush_chunks(self.archive, STREAM, list(self.pinned), SMALL)
            self.pinned.clear()

    def close(self) -> None:
        """Flush, end the opening, and delete the log."""
        self.flush()
        end_opening(self.archive, STREAM, self.epoch, is_sealed=False)
        self.store.delete(self.place, range(self.sequence))

    def trim(self) -> None:
        """Have the stream begin at its end."""
        stores = LifecycleStores.open(self.site.table, self.site.objects, KEYS, grace_ms=LONGEST_GRACE_MS)
        trim_stream(self.archive, replace(stores, now=self.site.clock), STREAM, self.epoch, self.at)
        self.site.tell("trimmed", str(self.at))

    def _create(self, body: bytes, nonce: bytes) -> bool:
        """Create the next object as the writer does: once more if no answer came, then by a seal of its own."""
        for _ in range(2):
            try:
                return _create_own(self.store, self.place, self.sequence, body, nonce)
            except UnavailableError:
                continue
        return self.sequence < seal(self.store, self.place)


def appender(name: str, *, batches: int, closes: bool) -> Callable[[Site], None]:
    """Return the life of a process."""

    def work(site: Site) -> None:
        one = Appender(site, name)
        one.open()
        for _ in range(batches):
            one.append()
        one.flush()
        if closes:
            one.close()

    return work


def trimmer(site: Site) -> None:
    """Open the stream, and have it begin at its end."""
    one = Appender(site, "t")
    one.open()
    one.trim()


def collect(site: Site) -> None:
    """Collect garbage, by a clock by which everything is old: ages protect nobody."""
    GarbageCollector(site.table, site.objects, KEYS, lambda: TimestampMs(site.clock() + 100 * DAY_MS)).run(
        GarbageOptions(delete=True)
    )


DIRECT: dict[str, Callable[[str], Callable[[Site], None]]] = {
    "append": partial(appender, batches=1, closes=False),
    "appends": partial(appender, batches=2, closes=False),
    "closing": partial(appender, batches=1, closes=True),
    "trim": lambda _: trimmer,
    "collect": lambda _: collect,
}


BASES: dict[str, Callable[[MemoryTable, MemoryObjects], None]] = {}
"""What the stream has been through before, by name (tests/explore/direct_bases.py)."""

OF_BASES = (*ENDS, ContradictionError, HeldError, NotClosedError)
"""With these a process learns what the stream has been through."""


def direct_world(names: Sequence[str], *, faults: str = "0c0l0r") -> World:
    """Return an empty direct stream, and who appends to it."""
    table, objects = MemoryTable(), MemoryObjects(clock=lambda: NOW)
    archive = DirectArchive(table, objects, KEYS, lambda: NOW)
    archive.control.write_stream(STREAM)
    table.apply(plan_create(STREAM, NOW, first=Offset(0), properties={}))
    for name in names:
        if name in BASES:
            BASES[name](table, objects)
    roles = [
        Role(
            name,
            DIRECT[name.partition(".")[0]](chr(ord("a") + number)),
            OF_BASES if name in {"blind", "force"} or BASES.keys() & {*names} else ENDS,
            (UnavailableError,),
        )
        for number, name in enumerate(one for one in names if one not in BASES)
    ]
    return World(
        stream=STREAM,
        log=table._partitions[STREAM.incarnation],
        recorded=table._recorded.get(STREAM.incarnation, {}),
        names=NamesState.of(table),
        bucket=BucketState({key: objects._version(key) for key in sorted(objects.objects)}),
        now=NOW,
        roles=roles,
        faults=Faults.parse(faults),
    )


class Promises:
    """Holds invariant 13 of docs/design.md against each state: one appends, and what was acknowledged stays."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._judged: set[object] = set()
        objects = MemoryObjects()
        machine.world.bucket.copy_into(objects)
        self._notes_before = {key for key in objects.objects if key.startswith(KEYS.direct_notes(STREAM.incarnation))}
        self._openings_before = {
            one.epoch: one for one in ControlObjects(objects, KEYS).openings(STREAM.incarnation)
        }
        machine.watch = self

    def changed(self, before: int, after: int) -> None:
        """The epoch never falls, and what is archived is without a hole."""
        old, new = (self._machine.log.partition(number).state for number in (before, after))
        assert old.head is not None
        assert new.head is not None
        assert old.head.appender is not None
        assert new.head.appender is not None
        was, now = old.head.appender, new.head.appender
        _hold(now.epoch >= was.epoch, "the epoch falls")
        is_over = was.is_sealed or old.head.is_deleted
        _hold(not is_over or new.head.next_offset in {None, old.head.next_offset}, "something comes after its end")
        _hold(not is_over or now.epoch == was.epoch, "it is opened after its end")
        log = sorted(new.entries.values(), key=lambda one: one.first_offset)
        _hold(all(one.next_offset == two.first_offset for one, two in pairwise(log)), "a hole")

    def deleted(self, keys: tuple[str, ...], partition: int, bucket: int, told: int, now: TimestampMs) -> None:
        """No entry names an object that goes."""
        names = {one.key for one in self._machine.log.partition(partition).state.entries.values()}
        _hold(not names & set(keys), f"deleted, and named: {names & set(keys)}")

    def look(self, partition: int, bucket: int, told: int) -> int:
        """What is archived is what was acknowledged at its offset, nothing refused, and nothing twice."""
        state = self._machine.log.partition(partition).state
        table, objects = self._double(state, bucket)
        lost = {one.key for one in state.entries.values()} - objects.objects.keys()
        _hold(not lost, f"is named, and is not there: {lost}")
        self._judge_notes(partition, objects)
        _judge_trims(state, self._told(told))
        found = _bodies(table, objects)
        _judge(found, self._told(told), is_end=False, floor=0)
        return told

    def found(self, what: str, found: Hashable, begun: tuple[int, int], now: tuple[int, int]) -> None:
        """Nobody looks at a direct stream here."""

    def ended(self, state: State) -> None:
        """Once more opened and recovered, the stream has all that was acknowledged."""
        partition = self._machine.log.partition(self._machine.log.partition_of(state[LOG])).state
        key = state[LOG], state[BUCKET], state[TOLD]
        if key in self._judged:
            return
        _judge_trims(partition, self._told(state[TOLD]))
        table, objects = self._double(partition, state[BUCKET])
        site = Doubles(table, objects)
        last = Appender(site, "z")  # type: ignore[arg-type]
        try:
            last.open()
        except (StreamNotFoundError, StreamClosedError, ContradictionError, NotClosedError, ExpiredEpochError):
            if self._is_refused(partition):
                return
            raise
        head = table.head(STREAM.incarnation)
        assert head is not None
        assert head.appender is not None
        _judge(
            _bodies(table, objects), self._told(state[TOLD]), is_end=True, floor=max(head.floor, head.appender.start)
        )
        self._judged.add(key)

    def _is_refused(self, partition: ManifestState) -> bool:
        """Tell whether nobody can open the stream, as it has ended, or as it was before the world began."""
        head = partition.head
        if head is None or head.is_deleted or head.appender is None or head.appender.is_sealed:
            return True
        return bool(self._openings_before)

    def _judge_notes(self, partition: int, objects: MemoryObjects) -> None:
        """What the bucket knows has been so, and it knows where the stream starts before anything goes."""
        control, known, starts = ControlObjects(objects, KEYS), set(), [Offset(0)]
        there = self._machine.log.partition(partition)
        head = there.state.head
        while True:
            if there.state.head is not None and there.state.head.appender is not None:
                known.add(DirectNote.of(there.state.head))
            if there.before < 0:
                break
            there = self._machine.log.partition(there.before)
        if head is None or head.appender is None:
            return
        for key in objects.objects:
            if key.startswith(KEYS.direct_notes(STREAM.incarnation)) and key not in self._notes_before:
                note = DirectNote.from_bytes(objects.objects[key], source=key)
                _hold(note in known, f"the bucket says of revision {note.revision} what never was")
                starts.append(note.appender.start)
        for opening in control.openings(STREAM.incarnation):
            before = self._openings_before.get(opening.epoch, opening)
            _hold(opening == before, f"epoch {opening.epoch} is noted twice")
            is_given = opening.epoch <= head.appender.epoch or opening.epoch in self._openings_before
            _hold(is_given, f"epoch {opening.epoch} is noted, and was not given")
        _hold(head.floor <= max(starts), f"goes up to {head.floor}, and the bucket knows of {max(starts)}")

    def _told(self, number: int) -> Told:
        return self._machine.told.values[number]  # type: ignore[return-value]

    def _double(self, state: ManifestState, bucket: int) -> tuple[MemoryTable, MemoryObjects]:
        table, objects = MemoryTable(), MemoryObjects(clock=lambda: NOW)
        table._partitions = {STREAM.incarnation: state}
        self._machine.bucket.state(bucket).copy_into(objects)
        return table, objects


@dataclass
class Doubles:
    """The site of who looks at the end."""

    table: MemoryTable
    objects: MemoryObjects

    def clock(self) -> TimestampMs:
        return TimestampMs(NOW + HOUR_MS)

    def name(self) -> str:
        return "before"

    def tell(self, what: str, fact: str) -> None:
        """Nobody listens."""


def _hold(holds: bool, told: str) -> None:  # noqa: FBT001  a condition
    if not holds:
        raise Violation(f"invariant 13: {told}")


def _bodies(table: MemoryTable, objects: MemoryObjects) -> dict[int, str]:
    """Return the archived batches by offset."""
    found = {}
    for data in archived(DirectArchive(table, objects, KEYS), STREAM):
        (chunk,) = iter_chunks(data, source="archive")
        if chunk.header.type is ChunkType.USER:
            match = re.search(rb"<([a-z]\.\d+\.\d+)>", data)
            assert match is not None
            found[int(chunk.header.chunk_id)] = match[1].decode()
    return found


def _judge(found: dict[int, str], told: Told, *, is_end: bool, floor: int) -> None:
    _hold(len(set(found.values())) == len(found), f"a batch is there twice: {found}")
    given_up = max((int(fact) for what, fact in told.facts if what == "gave up"), default=0)
    for at, body in _acknowledged(told):
        if int(body.split(".")[1]) < given_up:
            continue  # somebody has forced his way
        if is_end and at >= floor:
            _hold(at in found, f"{body} was acknowledged at {at}, and is lost: {found}")
        _hold(found.get(at, body) == body, f"{body} was acknowledged at {at}, and there is {found.get(at)}")
    refused = {fact for what, fact in told.facts if what == "refused"}
    _hold(not refused & set(found.values()), f"refused, and there: {refused & set(found.values())}")


def _judge_trims(state: ManifestState, told: Told) -> None:
    for what, fact in told.facts:
        left = [one for one in state.entries.values() if what == "trimmed" and one.next_offset <= int(fact)]
        _hold(not left, f"trimmed to {fact}, and there: {len(left)}")


def _acknowledged(told: Told) -> Iterator[tuple[int, str]]:
    for what, fact in told.facts:
        if what == "acknowledged":
            at, _, body = fact.partition(" ")
            yield int(at), body
