from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.streams.wal.disk_store import DiskWalStore
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.streams.wal.s3_store import ExpressWalStore, S3WalStore
from coldstream.streams.wal.store import WalStore
from tests.support.directory_bucket import DirectoryBucket


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture(params=["memory", "objects", "s3", "express", "disk"])
def wal_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WalStore]:
    """Every implementation of the port, in turn."""
    match request.param:
        case "memory":
            yield MemoryWalStore()
        case "objects":
            yield S3WalStore(MemoryObjects(), Keys("archive/"))
        case "s3":
            yield S3WalStore(request.getfixturevalue("s3_objects"), Keys("archive/"))
        case "express":
            yield ExpressWalStore(DirectoryBucket(), Keys("archive/"))
        case _:
            store = DiskWalStore(tmp_path)
            yield store
            store.close()
