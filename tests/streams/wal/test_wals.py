from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError, NotClosedError, UnavailableError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.wal_object import wal_object
from coldstream.streams.archive import DirectArchive
from coldstream.streams.client import StreamClient
from coldstream.streams.wal.disk_store import DiskWalStore
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.s3_store import ExpressWalStore, S3WalStore
from coldstream.streams.wal.writer import WalWriter
from coldstream.streams.wals import Wals
from coldstream.units import Epoch
from tests.support.directory_bucket import DirectoryBucket
from tests.support.wal_chunks import LIFE, chunk

KEYS = Keys("archive/")
PLACE = WalPlace(WalKind.MEMORY, "me", 1)


def written(store: MemoryWalStore, place: WalPlace = PLACE) -> None:
    store.create(place, 0, wal_object(bytes(16), ()))
    for sequence in range(1, 4):
        store.create(place, sequence, wal_object(bytes(16), [chunk(sequence - 1)]))


def test_a_wal_of_another_process_is_sealed_once_for_all_who_read_it() -> None:
    store = MemoryWalStore()
    written(store)
    wals = Wals({WalKind.MEMORY: store})
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: wals.sealed_entries(PLACE, LIFE, Epoch(1)), range(8)))
    assert [[entry.first_offset for _, entry in one] for one in found] == [[0, 1, 2]] * 8
    assert store.requests["create"] == 5
    assert next(wals.chunks(PLACE, found[0])).first_offset == 0


def test_a_wal_of_this_process_is_read_and_not_sealed() -> None:
    store = MemoryWalStore()
    written(store)
    wals = Wals({WalKind.MEMORY: store})
    wals.begin(PLACE)
    assert len(wals.sealed_entries(PLACE, LIFE, Epoch(1))) == 3
    assert sorted(store.sequences(PLACE)) == [0, 1, 2, 3]
    wals.end(PLACE)
    wals.sealed_entries(PLACE, LIFE, Epoch(1))
    assert sorted(store.sequences(PLACE)) == [0, 1, 2, 3, 4]


def test_who_looks_seals_nothing_and_sees_what_is_durable_by_then() -> None:
    store = MemoryWalStore()
    written(store)
    wals = Wals({WalKind.MEMORY: store})
    assert len(wals.durable_entries(PLACE, LIFE, Epoch(1))) == 3
    store.create(PLACE, 4, wal_object(bytes(16), [chunk(3)]))
    store.create(PLACE, 6, wal_object(bytes(16), [chunk(5)]))
    assert [entry.first_offset for _, entry in wals.durable_entries(PLACE, LIFE, Epoch(1))] == [0, 1, 2, 3]
    assert sorted(store.sequences(PLACE)) == [0, 1, 2, 3, 4, 6]


def test_a_wal_that_cannot_be_sealed_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, is_waiting = threading.Event(), threading.Event()

    class Stalled(MemoryWalStore):
        def sequences(self, place: WalPlace) -> list[int]:
            if place.epoch == 2:
                is_waiting.set()
                assert go_on.wait(60)
                raise UnavailableError("the store is away")
            return list(super().sequences(place))

    monkeypatch.setattr("coldstream.streams.wal.seal.ROUNDS", 2)
    store = Stalled()
    written(store)
    wals = Wals({WalKind.MEMORY: store})
    with ThreadPoolExecutor(1) as threads:
        stuck = threads.submit(wals.sealed_entries, WalPlace(WalKind.MEMORY, "me", 2), LIFE, Epoch(1))
        try:
            assert is_waiting.wait(60)
            assert len(wals.sealed_entries(PLACE, LIFE, Epoch(1))) == 3
        finally:
            go_on.set()
        with pytest.raises(UnavailableError):
            stuck.result()


def test_a_wal_is_read_where_it_was_written_alone(tmp_path: Path) -> None:
    bucket, express = S3WalStore(MemoryObjects(), KEYS), ExpressWalStore(DirectoryBucket(), KEYS)
    place = WalPlace(WalKind.EXPRESS, "me", 1)
    express.create(place, 0, wal_object(bytes(16), ()))
    assert Wals({WalKind.S3: bucket, WalKind.EXPRESS: express}).can_read(place)
    assert not Wals({WalKind.S3: bucket}).can_read(place)
    another = ExpressWalStore(DirectoryBucket(), KEYS)
    assert not Wals({WalKind.S3: bucket, WalKind.EXPRESS: another}).can_read(place)
    disk = DiskWalStore(tmp_path)
    assert not Wals({WalKind.S3: bucket, WalKind.DISK: disk}).can_read(WalPlace(WalKind.DISK, "me", 1))
    assert Wals({WalKind.S3: bucket}).can_read(WalPlace(WalKind.S3, "anyone", 7))
    disk.close()


@pytest.mark.parametrize("kind", ["disk", "memory"])
async def test_a_wal_that_was_closed_can_be_read_and_is_empty(kind: str, tmp_path: Path, executor: Executor) -> None:
    store = DiskWalStore(tmp_path) if kind == "disk" else MemoryWalStore()
    writer = await WalWriter.begin(store, "me", WalOptions(), executor)
    writer.flushed(await writer.submit(chunk(0)))
    await writer.close()
    assert list(store.sequences(writer.place)) == []
    if isinstance(store, DiskWalStore):
        store.close()
        store = DiskWalStore(tmp_path)
    wals = Wals({store.kind: store})
    assert wals.can_read(writer.place)
    assert wals.sealed_entries(writer.place, LIFE, Epoch(1)) == []


async def test_a_client_has_no_wal_in_another_bucket_of_s3() -> None:
    archive = DirectArchive(MemoryTable(), MemoryObjects(), KEYS)
    with pytest.raises(InvalidSettingError, match="wal"):
        await StreamClient.open(archive, wal=S3WalStore(MemoryObjects(), KEYS))


async def test_a_stream_whose_wal_is_in_s3_express_is_opened_where_that_bucket_is() -> None:
    archive = DirectArchive(MemoryTable(), MemoryObjects(), KEYS)
    express = ExpressWalStore(DirectoryBucket(), KEYS)
    dead = await StreamClient.open(archive, wal=express)
    await dead.create("orders")
    handle = await dead.open_stream("orders")
    await handle.append([b"one"])
    async with await StreamClient.open(archive) as other:
        with pytest.raises(NotClosedError, match="s3-express"):
            await other.open_stream("orders")
    async with await StreamClient.open(archive, wal=ExpressWalStore(DirectoryBucket(), KEYS)) as elsewhere:
        with pytest.raises(NotClosedError):
            await elsewhere.open_stream("orders")
    async with await StreamClient.open(archive, wal=express) as heir:
        assert (await heir.open_stream("orders")).tail == 1
    await dead.close()
    assert handle.tail == 1
