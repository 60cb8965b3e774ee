"""The contract of `store.WalStore`, on every implementation."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import pytest

from coldstream.errors import InvalidNameError, ObjectExistsError, ObjectNotFoundError, WalEndedError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.store import WalStore
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import ByteRange
from tests.support.wal_chunks import chunk


def place(store: WalStore, epoch: int = 1, writer: str = "host-1a2b") -> WalPlace:
    return WalPlace(store.kind, writer, epoch)


def test_an_object_is_read_as_it_was_created(wal_store: WalStore) -> None:
    wal_store.create(place(wal_store), 7, b"0123456789")
    assert wal_store.read(place(wal_store), 7) == b"0123456789"
    assert wal_store.read(place(wal_store), 7, ByteRange(2, 5)) == b"234"


def test_a_range_ends_where_the_object_does(wal_store: WalStore) -> None:
    wal_store.create(place(wal_store), 7, b"0123456789")
    assert wal_store.read(place(wal_store), 7, ByteRange(8, 100)) == b"89"
    assert wal_store.read(place(wal_store), 7, ByteRange(10, 100)) == b""


@pytest.mark.parametrize("second", [b"first", b"second"])
def test_an_object_is_created_once_whatever_its_bytes(wal_store: WalStore, second: bytes) -> None:
    wal_store.create(place(wal_store), 0, b"first")
    with pytest.raises(ObjectExistsError):
        wal_store.create(place(wal_store), 0, second)
    assert wal_store.read(place(wal_store), 0) == b"first"


def test_of_many_at_once_one_creates_an_object(wal_store: WalStore, executor: Executor) -> None:
    def create(number: int) -> int | None:
        try:
            wal_store.create(place(wal_store), 3, b"%d" % number)
        except ObjectExistsError:
            return None
        return number

    winners = [number for number in executor.map(create, range(16)) if number is not None]
    assert [b"%d" % number for number in winners] == [wal_store.read(place(wal_store), 3)]


def test_sequences_are_those_of_the_place(wal_store: WalStore) -> None:
    for sequence in (3, 0, 10**12, 20):
        wal_store.create(place(wal_store, 1), sequence, b"x")
    wal_store.create(place(wal_store, 11), 4, b"x")
    wal_store.create(place(wal_store, 1, "host-1a2b3"), 5, b"x")
    assert sorted(wal_store.sequences(place(wal_store, 1))) == [0, 3, 20, 10**12]
    assert list(wal_store.sequences(place(wal_store, 2))) == []


def test_what_is_not_there_is_not_found(wal_store: WalStore) -> None:
    for byte_range in (None, ByteRange(0, 32)):
        with pytest.raises(ObjectNotFoundError):
            wal_store.read(place(wal_store), 0, byte_range)


def test_what_is_deleted_is_gone_and_may_be_deleted_again(wal_store: WalStore) -> None:
    for sequence in range(5):
        wal_store.create(place(wal_store), sequence, b"x")
    for _ in range(2):
        wal_store.delete(place(wal_store), range(3))
        assert sorted(wal_store.sequences(place(wal_store))) == [3, 4]
    wal_store.delete(place(wal_store), ())
    wal_store.delete(place(wal_store, 9), [1])


def test_epochs_are_those_with_objects(wal_store: WalStore) -> None:
    assert list(wal_store.epochs("host-1a2b")) == []
    for epoch in (2, 1, 12):
        wal_store.create(place(wal_store, epoch), 0, b"x")
        wal_store.create(place(wal_store, epoch), 1, b"x")
    wal_store.create(place(wal_store, 99, "host-1a2b3"), 0, b"x")
    assert sorted(wal_store.epochs("host-1a2b")) == [1, 2, 12]
    wal_store.delete(place(wal_store, 12), [0, 1])
    left = [1, 2, 12] if wal_store.kind is WalKind.DISK else [1, 2]
    assert sorted(wal_store.epochs("host-1a2b")) == left


def test_what_was_written_here_is_known_to_be_here(wal_store: WalStore) -> None:
    wal_store.create(place(wal_store, 2), 0, b"x")
    assert wal_store.is_here(place(wal_store, 2))
    other_kind = WalKind.S3 if wal_store.kind is not WalKind.S3 else WalKind.EXPRESS
    assert not wal_store.is_here(WalPlace(other_kind, "host-1a2b", 2))
    in_any = wal_store.kind is WalKind.S3
    assert wal_store.is_here(place(wal_store, 1)) is in_any
    assert wal_store.is_here(place(wal_store, 2, "host-2")) is in_any


def test_a_wal_whose_objects_were_all_deleted_is_here_unless_that_cannot_be_told(wal_store: WalStore) -> None:
    wal_store.create(place(wal_store), 0, b"x")
    wal_store.delete(place(wal_store), [0])
    # An empty place in S3 Express may be that of another bucket.
    assert wal_store.is_here(place(wal_store)) is (wal_store.kind is not WalKind.EXPRESS)


def test_a_name_that_leaves_the_prefix_is_refused(wal_store: WalStore) -> None:
    with pytest.raises(InvalidNameError):
        wal_store.epochs("../other")


async def test_a_writer_and_its_sealer_agree(wal_store: WalStore, executor: Executor) -> None:
    writer = await WalWriter.begin(wal_store, "host-1a2b", WalOptions(max_bytes=1, in_flight=4), executor)
    sequences = await asyncio.gather(*[writer.submit(chunk(at)) for at in range(20)])
    assert sequences == list(range(1, 21))
    assert await asyncio.to_thread(seal, wal_store, writer.place) == 21
    with pytest.raises(WalEndedError):
        await writer.submit(chunk(20))
    assert await asyncio.to_thread(seal, wal_store, writer.place) == 21
    assert (await WalWriter.begin(wal_store, "host-1a2b", WalOptions(), executor)).place == place(wal_store, 2)
