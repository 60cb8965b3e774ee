"""What the disk alone does: it fills up, its syncs fail, another process has it, and processes die on it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from coldstream.errors import (
    InvalidSettingError,
    ObjectExistsError,
    OutcomeUnknownError,
    UnavailableError,
    WalEndedError,
)
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.streams.wal import disk_store
from coldstream.streams.wal.disk_store import DiskWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.reader import WalReader
from coldstream.streams.wal.seal import seal
from coldstream.streams.wal.writer import WalWriter
from coldstream.units import Epoch
from tests.support.wal_chunks import LIFE, chunk

ROOT = Path(__file__).parents[3]
PLACE = WalPlace(WalKind.DISK, "me", 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskWalStore]:
    store = DiskWalStore(tmp_path / "new" / "wal")
    yield store
    store.close()


def test_a_directory_is_of_one_process_until_it_is_closed(store: DiskWalStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="another process"):
        DiskWalStore(tmp_path / "new" / "wal")
    store.close()
    store.close()
    DiskWalStore(tmp_path / "new" / "wal").close()


def test_what_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidSettingError, match="cannot be written to"):
        DiskWalStore(tmp_path / "file")


def test_what_was_being_written_when_the_process_ended_is_removed(store: DiskWalStore, tmp_path: Path) -> None:
    store.create(PLACE, 0, b"x")
    (unfinished := tmp_path / "new/wal/me/0000000001/.half").write_bytes(b"ha")
    store.close()
    again = DiskWalStore(tmp_path / "new" / "wal")
    assert not unfinished.exists()
    assert again.read(PLACE, 0) == b"x"
    again.close()


class _Syncs:
    """What is synced, in order; those of names in `failing` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.failing: set[str] = set()
        self._sync = os.fsync
        monkeypatch.setattr(disk_store.os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        self.seen.append(name if not name.startswith(".") else "object")
        if name in self.failing:
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


def test_each_directory_is_durable_before_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = _Syncs(monkeypatch)
    store = DiskWalStore(tmp_path / "new" / "wal")
    assert syncs.seen == [tmp_path.name, "new"]
    store.create(PLACE, 0, b"x")
    assert syncs.seen[2:] == ["wal", "me", "object", "0000000001"]
    store.create(PLACE, 1, b"x")
    assert syncs.seen[6:] == ["object", "0000000001"]
    store.close()


def test_a_directory_whose_sync_failed_is_synced_again(store: DiskWalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = _Syncs(monkeypatch)
    syncs.failing.add("me")
    with pytest.raises(UnavailableError):
        store.create(PLACE, 0, b"x")
    assert list(store.sequences(PLACE)) == []
    syncs.failing.clear()
    store.create(PLACE, 0, b"x")
    assert syncs.seen == ["wal", "me", "me", "object", "0000000001"]


def test_an_object_whose_directory_was_not_synced_may_or_may_not_be_there(
    store: DiskWalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(PLACE, 0, b"x")
    syncs = _Syncs(monkeypatch)
    syncs.failing.add("0000000001")
    with pytest.raises(OutcomeUnknownError):
        store.create(PLACE, 1, b"x")
    with pytest.raises(UnavailableError):
        store.create(PLACE, 1, b"x")
    syncs.failing.clear()
    syncs.seen.clear()
    with pytest.raises(ObjectExistsError):
        store.create(PLACE, 1, b"x")
    assert syncs.seen == ["object", "0000000001"]


def test_a_wal_whose_directory_was_removed_is_not_here(store: DiskWalStore, tmp_path: Path) -> None:
    store.create(PLACE, 0, b"x")
    for path in sorted((tmp_path / "new/wal/me").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert not store.is_here(PLACE)
    with pytest.raises(UnavailableError, match="removed"):
        store.create(PLACE, 1, b"x")
    store.create(PLACE, 1, b"x")


class _FullDisk:
    """Writes up to a number of bytes, then fails as a full disk does, in the middle of a file.

    What is `small` fits in all the same.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int, small: int) -> None:
        self.left, self.small = left, small
        self._write = disk_store._write
        monkeypatch.setattr(disk_store, "_write", self)

    def __call__(self, path: Path, body: bytes) -> None:
        if len(body) > self.left and len(body) > self.small:
            path.write_bytes(body[: self.left])
            self.left = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left = max(0, self.left - len(body))
        self._write(path, body)


@pytest.mark.parametrize(
    ("small", "told"), [(0, OutcomeUnknownError), (40, WalEndedError)], ids=["no room for a seal", "room for a seal"]
)
async def test_a_full_disk_loses_nothing_and_room_lets_the_next_wal_go_on(
    store: DiskWalStore, executor: Executor, monkeypatch: pytest.MonkeyPatch, small: int, told: type[Exception]
) -> None:
    monkeypatch.setattr("coldstream.streams.wal.seal.time.sleep", lambda _: None)
    options = WalOptions(max_bytes=1, attempts=2, max_delay_s=0)
    writer = await WalWriter.begin(store, "me", options, executor)
    disk = _FullDisk(monkeypatch, 1500, small)
    outcomes = await asyncio.gather(*(writer.submit(chunk(at)) for at in range(20)), return_exceptions=True)
    durable = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, int)]
    assert 0 < len(durable) < 20
    assert durable == list(range(len(durable)))
    assert all(isinstance(outcome, told) for outcome in outcomes[len(durable) :])
    assert writer.abandoned is (told is OutcomeUnknownError)
    disk.left = 1 << 20
    end = await asyncio.to_thread(seal, store, writer.place)
    entries = WalReader(store).entries(writer.place, end, LIFE, Epoch(1))
    assert [entry.first_offset for _, entry in entries] == durable
    following = await WalWriter.begin(store, "me", options, executor)
    assert following.place == WalPlace(WalKind.DISK, "me", 2)
    assert await following.submit(chunk(20)) == 1


APPEND_FOR_EVER = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from coldstream.streams.wal.disk_store import DiskWalStore
from coldstream.streams.wal.options import WalOptions
from coldstream.streams.wal.writer import WalWriter
from tests.support.wal_chunks import chunk

def tell(at):
    return lambda done: sys.stdout.write(f"{at}\\n") and sys.stdout.flush()

async def main():
    store = DiskWalStore(Path(sys.argv[1]))
    writer = await WalWriter.begin(store, "me", WalOptions(max_bytes=1000), ThreadPoolExecutor(8))
    for at in range(1_000_000):
        writer.submit(chunk(at)).add_done_callback(tell(at))
        if at % 20 == 0:
            await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 50, 300])
def test_a_process_that_is_killed_leaves_all_that_it_was_told_is_durable(tmp_path: Path, lines: int) -> None:
    command = [sys.executable, "-c", APPEND_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read().splitlines(keepends=True)
    acknowledged = [int(line) for line in told if re.fullmatch(r"\d+\n", line)]
    assert len(acknowledged) >= lines
    store = DiskWalStore(tmp_path)
    place = WalPlace(WalKind.DISK, "me", 1)
    assert store.is_here(place)
    reader = WalReader(store)
    entries = reader.entries(place, seal(store, place), LIFE, Epoch(1))
    found = [one.first_offset for one in reader.read_chunks(place, entries)]
    assert found == list(range(len(found)))
    assert acknowledged == found[: len(acknowledged)]
    store.close()
