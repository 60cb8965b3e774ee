"""Objects of write-ahead logs: what is garbage, what is needed, and what stays for ever so that nobody is misled."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from coldstream.errors import ObjectExistsError, ObjectNotFoundError, WalEndedError
from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.stream import Incarnation
from coldstream.store.wal_object import EMPTY_BYTES, FIXED_BYTES, WalChunk, kind_and_nonce, wal_object
from coldstream.store.wal_window import REACH
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import flush_chunks
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.reader import WalReader
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import ByteRange
from tests.garbage.littered import REPORT, LitteredArchive
from tests.support.flushing import STREAM, batches, create, forget_openings, open_stream
from tests.support.removing import delete, undelete

PLACE = WalPlace(WalKind.S3, "writer", 1)
OBJECTS = 100


@dataclass
class DeadWriter:
    """A process that appended to a stream in its log, and died."""

    archive: LitteredArchive = field(default_factory=LitteredArchive)
    chunks: tuple[CachedChunk, ...] = batches(OBJECTS - 1)

    def __post_init__(self) -> None:
        archive = self.archive
        self.direct = DirectArchive(archive.table, archive.objects, archive.keys, archive.now)
        self.store = S3WalStore(archive.objects, archive.keys)
        create(self.direct)
        self.put(0)
        for sequence, chunk in enumerate(self.chunks, 1):
            self.put(sequence, chunk)

    def put(self, sequence: int, *chunks: CachedChunk, of: Incarnation = STREAM.incarnation) -> None:
        """Put an object, whose nonce tells its sequence."""
        held = [WalChunk(of, one.epoch, one.first_offset, one.next_offset, one.data) for one in chunks]
        self.store.create(PLACE, sequence, wal_object(b"%016d" % sequence, held))

    def seal(self) -> int:
        with ThreadPoolExecutor(2) as executor:
            return seal(self.store, PLACE, executor=executor)

    def recover(self) -> None:
        """Have another process open the stream, and recover it."""
        open_stream(self.direct, writer="next")
        assert self.seal() == OBJECTS
        flush_chunks(self.direct, STREAM, self.chunks, 1000)
        forget_openings(self.direct)

    def states(self, *, delete: bool = False) -> Counter[ObjectState]:
        """Make a pass two days later, and count the states of what the log has."""
        self.archive.pass_days(2)
        report = self.archive.collect() if delete else self.archive.collect(REPORT)
        return Counter({one.state: one.objects for one in report.findings if one.kind is ObjectKind.WAL})

    @property
    def left(self) -> dict[int, int]:
        """The sequences that are there, with their sizes."""
        prefix = f"{self.archive.keys.wals}writer/0000000001/"
        return {int(one.key[-20:]): one.size_bytes for one in self.archive.objects.listed(prefix)}


def test_of_a_log_that_was_recovered_nothing_stays_but_its_seal_and_empty_objects_before_it() -> None:
    dead = DeadWriter()
    dead.recover()
    assert dead.states() == {ObjectState.GARBAGE: OBJECTS - REACH, ObjectState.IN_USE: REACH + 1}
    assert dead.states(delete=True) == {ObjectState.GARBAGE: OBJECTS - REACH, ObjectState.IN_USE: REACH + 1}
    assert dead.left == dict.fromkeys(range(OBJECTS - REACH, OBJECTS + 1), EMPTY_BYTES)


def test_what_is_left_of_a_log_costs_no_request_any_more() -> None:
    dead = DeadWriter()
    dead.recover()
    dead.states(delete=True)
    before = Counter(dead.archive.objects.requests)
    assert dead.states(delete=True) == {ObjectState.IN_USE: REACH + 1}
    made = Counter(dead.archive.objects.requests) - before
    assert (made["GetObject"], made["PutObject"], made["DeleteObjects"]) == (0, 0, 0)


def test_a_zombie_meets_its_own_objects_and_the_seal_whenever_it_wakes_up() -> None:
    dead = DeadWriter()
    dead.recover()
    dead.states(delete=True)
    for sequence in range(OBJECTS - REACH, OBJECTS + 1):
        with pytest.raises(ObjectExistsError):
            dead.put(sequence)
        kind, nonce = kind_and_nonce(dead.store.read(PLACE, sequence, ByteRange(0, FIXED_BYTES)), source="there")
        assert (kind == 0) is (nonce == b"%016d" % sequence) is (sequence < OBJECTS)
    # Others of its window arrive, and count for nothing.
    for sequence in range(OBJECTS + 1, OBJECTS + 16):
        dead.put(sequence)
    assert dead.seal() == OBJECTS
    assert dead.states(delete=True)[ObjectState.GARBAGE] == 15
    assert max(dead.left) == OBJECTS


def test_a_sealer_that_slept_all_the_while_finds_the_same_end() -> None:
    dead = DeadWriter()
    dead.recover()
    dead.states(delete=True)
    for sequence in (20, OBJECTS - REACH - 1):  # where it saw a hole once, and something was since
        dead.put(sequence)
    assert dead.seal() == OBJECTS


def test_what_nobody_has_recovered_stays_as_it_is() -> None:
    dead = DeadWriter()
    flush_chunks(dead.direct, STREAM, dead.chunks[:30], 1000)
    # Object 0 and the first 30 are needless, the others are not. Nobody has written for days: the log is sealed.
    assert dead.states(delete=True) == {ObjectState.GARBAGE: 31, ObjectState.WAITING: OBJECTS - 31}
    assert set(dead.left) == set(range(31, OBJECTS + 1))
    assert all(size > EMPTY_BYTES for sequence, size in dead.left.items() if sequence < OBJECTS)
    open_stream(dead.direct, writer="next")
    assert dead.states(delete=True)[ObjectState.WAITING] == OBJECTS - 31
    found = WalReader(dead.store).entries(PLACE, dead.seal(), STREAM.incarnation, dead.chunks[0].epoch)
    assert [entry.first_offset for _, entry in found] == [one.first_offset for one in dead.chunks[30:]]


def test_a_report_seals_nothing_and_empties_nothing() -> None:
    dead = DeadWriter()
    flush_chunks(dead.direct, STREAM, dead.chunks, 1000)
    before = dict(dead.archive.objects.objects)
    assert dead.states()[ObjectState.GARBAGE] == OBJECTS - REACH
    assert dict(dead.archive.objects.objects) == before


def test_a_log_that_was_written_to_today_is_left_alone() -> None:
    dead = DeadWriter()
    flush_chunks(dead.direct, STREAM, dead.chunks, 1000)
    dead.archive.pass_days(2)
    dead.put(OBJECTS)
    report = dead.archive.collect()
    states = Counter({one.state: one.objects for one in report.findings if one.kind is ObjectKind.WAL})
    assert states == {ObjectState.IN_USE: OBJECTS, ObjectState.YOUNG: 1}
    assert len(dead.left) == OBJECTS + 1


def test_a_process_that_slept_goes_on_in_its_next_log() -> None:
    dead = DeadWriter(chunks=())

    async def run() -> None:
        with ThreadPoolExecutor(4) as executor:
            writer = await WalWriter.begin(dead.store, "idle", WalOptions(), executor)
            for number, one in enumerate(batches(80)):
                chunk = WalChunk(STREAM.incarnation, one.epoch, one.first_offset, one.next_offset, one.data)
                assert await writer.submit(chunk) == number + 1
            flush_chunks(dead.direct, STREAM, batches(80), 1000)
            assert dead.states(delete=True)[ObjectState.GARBAGE] == 81 - REACH
            with pytest.raises(WalEndedError):
                await writer.submit(chunk)
            following = await WalWriter.begin(dead.store, "idle", WalOptions(), executor)
            assert following.place.epoch == writer.place.epoch + 1

    asyncio.run(run())


def test_of_a_stream_that_the_table_does_not_know_everything_stays() -> None:
    dead = DeadWriter(chunks=())
    for sequence, chunk in enumerate(batches(60), 1):
        dead.put(sequence, chunk, of=Incarnation("__lost_1763700000000000000"))
    assert dead.states(delete=True)[ObjectState.UNKNOWN] == 60
    assert {*range(1, 61)} < set(dead.left)


def test_of_an_epoch_that_the_table_does_not_know_everything_stays() -> None:
    dead = DeadWriter(chunks=batches(50, epoch=7))
    assert dead.states(delete=True)[ObjectState.UNKNOWN] == 50


def test_of_a_deleted_stream_everything_stays_until_that_cannot_be_undone() -> None:
    dead = DeadWriter()
    delete(dead.archive.table, STREAM.incarnation)
    assert dead.states(delete=True)[ObjectState.WAITING] == OBJECTS - 1
    undelete(dead.archive.table, STREAM.incarnation)
    assert dead.states(delete=True)[ObjectState.WAITING] == OBJECTS - 1


def test_a_damaged_object_is_told_and_stays() -> None:
    dead = DeadWriter()
    dead.recover()
    key = dead.archive.keys.wal_object("writer", 1, 5)
    body = bytearray(dead.archive.objects.objects[key])
    body[40] ^= 1
    dead.archive.objects.put(key, bytes(body))
    assert dead.states(delete=True)[ObjectState.UNKNOWN] == 1
    assert 5 in dead.left


def test_a_log_with_a_damaged_end_is_told_and_stays() -> None:
    dead = DeadWriter()
    dead.recover()
    dead.archive.objects.put(dead.archive.keys.wal_object("writer", 1, OBJECTS - 3), b"damaged" * 10)
    assert dead.states(delete=True) == {ObjectState.UNKNOWN: OBJECTS + 1}
    assert len(dead.left) == OBJECTS + 1


def test_who_reads_a_chunk_of_an_object_that_was_emptied_looks_in_the_archive() -> None:
    dead = DeadWriter()
    reader = WalReader(dead.store)
    found = reader.entries(PLACE, OBJECTS, STREAM.incarnation, dead.chunks[0].epoch)
    dead.recover()
    dead.states(delete=True)
    for at in (0, -1):  # one that is gone, and one that is empty
        with pytest.raises(ObjectNotFoundError):
            list(reader.read_chunks(PLACE, [found[at]]))
