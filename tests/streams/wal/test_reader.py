from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from coldstream.errors import BadCrcError, BadMagicError, CorruptionError, ObjectNotFoundError, UnavailableError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.stream import incarnation
from coldstream.store.wal_object import WalChunk, WalEntry, parse_header, wal_object
from coldstream.streams.wal import reader as reading
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.reader import FIRST_READ_BYTES, WalReader
from coldstream.units import ByteRange, Epoch
from tests.support.wal_chunks import LIFE, chunk

PLACE = WalPlace(WalKind.MEMORY, "me", 1)
OTHER = incarnation("__other_1763700000000000000")


def put(store: MemoryWalStore, sequence: int, *chunks: WalChunk) -> None:
    store.create(PLACE, sequence, wal_object(os.urandom(16), chunks))


@pytest.fixture
def store() -> MemoryWalStore:
    store = MemoryWalStore()
    put(store, 0)
    for sequence in range(1, 6):
        at = 2 * (sequence - 1)
        put(store, sequence, chunk(at), chunk(at, life=OTHER), chunk(at + 1), chunk(7 * at, epoch=2))
    return store


def entries_of(reader: WalReader, end: int = 6) -> Sequence[tuple[int, WalEntry]]:
    return reader.entries(PLACE, end, LIFE, Epoch(1))


def offsets(reader: WalReader, entries: Sequence[tuple[int, WalEntry]]) -> list[int]:
    return [one.first_offset for one in reader.read_chunks(PLACE, entries)]


def test_an_opening_has_its_own_chunks_in_order(store: MemoryWalStore) -> None:
    reader = WalReader(store)
    assert offsets(reader, entries_of(reader)) == list(range(10))
    assert offsets(reader, entries_of(reader, 3)) == list(range(4))
    assert offsets(reader, reader.entries(PLACE, 6, OTHER, Epoch(1))) == [0, 2, 4, 6, 8]
    assert reader.entries(PLACE, 6, OTHER, Epoch(2)) == []


def test_each_header_is_read_once_for_all_streams(store: MemoryWalStore) -> None:
    reader = WalReader(store)
    for life in (LIFE, OTHER):
        for _ in range(3):
            reader.entries(PLACE, 6, life, Epoch(1))
    assert store.requests["read"] == 6
    assert store.requests["sequences"] == 1


def test_neighbours_in_an_object_are_one_request(store: MemoryWalStore) -> None:
    reader = WalReader(store)
    entries = entries_of(reader)
    store.requests.clear()
    offsets(reader, entries)
    assert store.requests == {"read": 5}


def test_a_header_longer_than_the_first_read_is_read_whole(store: MemoryWalStore) -> None:
    put(store, 6, *(chunk(at) for at in range(10, 1500)))
    assert parse_header(store.read(PLACE, 6), source="object").header_bytes > FIRST_READ_BYTES
    reader = WalReader(store)
    assert offsets(reader, entries_of(reader, 7)) == list(range(1500))


def test_trimmed_objects_are_left_out_and_forgotten(store: MemoryWalStore) -> None:
    reader = WalReader(store)
    entries_of(reader, 4)
    store.delete(PLACE, range(3))
    assert [entry.first_offset for _, entry in entries_of(reader)] == list(range(4, 10))
    assert reader._directories[PLACE][1].size == 12


def test_an_object_that_is_trimmed_after_it_was_listed_is_left_out(store: MemoryWalStore) -> None:
    class Trimming(MemoryWalStore):
        def sequences(self, place: WalPlace) -> Sequence[int]:
            found = super().sequences(place)
            self.delete(place, [0, 1])
            return found

    trimming = Trimming(store.wals)
    assert [entry.first_offset for _, entry in entries_of(WalReader(trimming))] == list(range(2, 10))
    assert trimming.requests["sequences"] == 2


def test_an_object_that_vanishes_before_its_chunks_are_read_is_told(store: MemoryWalStore) -> None:
    reader = WalReader(store)
    entries = entries_of(reader)
    chunks = reader.read_chunks(PLACE, entries)
    store.delete(PLACE, [2])
    with pytest.raises(ObjectNotFoundError):
        list(chunks)


def test_an_object_that_is_listed_and_cannot_be_found_is_not_left_out(store: MemoryWalStore) -> None:
    class Forgetful(MemoryWalStore):
        def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
            if sequence == 3:
                raise ObjectNotFoundError("3")
            return super().read(place, sequence, byte_range)

    with pytest.raises(UnavailableError, match="listed"):
        entries_of(WalReader(Forgetful(store.wals)))


@pytest.mark.parametrize(
    ("at", "error"), [(0, BadMagicError), (40, BadCrcError), (-1, CorruptionError)], ids=["magic", "entry", "chunk"]
)
def test_damage_is_told_with_its_object(store: MemoryWalStore, at: int, error: type[CorruptionError]) -> None:
    key = ("me", 1, 3)
    damaged = bytearray(store.wals[key])
    if at < 0:  # the last chunk of this opening is not the object's last
        header = parse_header(store.wals[key], source="object")
        at = header.entries[2].byte_range.end - 1
    damaged[at] ^= 1
    store.wals[key] = bytes(damaged)
    reader = WalReader(store)
    with pytest.raises(error) as caught:
        offsets(reader, entries_of(reader))
    assert caught.value.source == "memory me/1/3"


def test_an_object_that_is_cut_short_is_told(store: MemoryWalStore) -> None:
    key = ("me", 1, 3)
    header = parse_header(store.wals[key], source="object")
    store.wals[key] = store.wals[key][: header.entries[2].byte_range.end - 1]
    reader = WalReader(store)
    with pytest.raises(CorruptionError) as caught:
        offsets(reader, entries_of(reader))
    assert (caught.value.source, caught.value.position) == ("memory me/1/3", header.entries[2].byte_range.start)


def test_a_chunk_that_is_not_what_its_entry_says_is_told(store: MemoryWalStore) -> None:
    other = chunk(11)
    put(store, 6, WalChunk(LIFE, Epoch(1), chunk(10).first_offset, chunk(10).next_offset, other.data))
    reader = WalReader(store)
    with pytest.raises(CorruptionError, match="memory me/1/6"):
        offsets(reader, entries_of(reader, 7))


def test_few_bytes_are_read_ahead(store: MemoryWalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = WalReader(store)
    entries = entries_of(reader)
    longest = max(len(entry.byte_range) for _, entry in entries)
    monkeypatch.setattr(reading, "_IN_FLIGHT_BYTES", 3 * longest)
    store.requests.clear()
    chunks = reader.read_chunks(PLACE, entries)
    next(chunks)
    assert store.requests["read"] < 5
    chunks.close()


def test_what_is_kept_of_wals_is_bounded(store: MemoryWalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_ENTRIES", 30)
    reader = WalReader(store)
    for epoch in range(2, 6):
        other = WalPlace(WalKind.MEMORY, "me", epoch)
        for sequence in range(6):
            store.create(other, sequence, store.read(PLACE, sequence))
        assert len(reader.entries(other, 6, LIFE, Epoch(1))) == 10
    assert len(reader._directories) <= 3
    assert len(entries_of(reader)) == 10


def test_an_object_that_is_emptied_between_two_reads_of_its_header_is_not_taken_for_damaged() -> None:
    class Emptied(MemoryWalStore):
        def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
            view = super().read(place, sequence, byte_range)
            self.wals[place.writer, place.epoch, sequence] = wal_object(b"." * 16, ())
            return view

    store = Emptied()
    put(store, 0, *(chunk(at) for at in range(1500)))
    assert list(entries_of(WalReader(store), 1)) == []
