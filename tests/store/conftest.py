from __future__ import annotations

import threading
import time

import pytest

from coldstream.manifest.commit import Change
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.memory.visibility import SeededVisibility
from coldstream.store.ports import ManifestTable, ObjectStore


class SettledTable(MemoryTable):
    """The weak double, for one writer who waits for each answer: all shows before the next read."""

    def __init__(self) -> None:
        super().__init__(SeededVisibility(0, newest=0))

    def apply(self, change: Change) -> None:
        super().apply(change)
        self.settle()


@pytest.fixture(params=["memory", "settled", "dynamo", "fast"])
def table(request: pytest.FixtureRequest) -> ManifestTable:
    """Every implementation of the port, in turn."""
    match request.param:
        case "memory":
            return MemoryTable()
        case "settled":
            return SettledTable()
        case _:
            return request.getfixturevalue(f"{request.param}_table")


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest) -> ObjectStore:
    """Every implementation of the port, in turn."""
    return MemoryObjects() if request.param == "memory" else request.getfixturevalue("s3_objects")


@pytest.fixture(params=["memory", "s3"])
def versioned(request: pytest.FixtureRequest) -> ObjectStore:
    """Every implementation of the port, with a bucket that keeps versions."""
    return MemoryObjects(versioned=True) if request.param == "memory" else request.getfixturevalue("s3_versioned")


@pytest.fixture(params=["memory", "s3"])
def locking(request: pytest.FixtureRequest) -> ObjectStore:
    """Every implementation of the port, with a bucket that has Object Lock."""
    return MemoryObjects(object_lock=True) if request.param == "memory" else request.getfixturevalue("s3_locking")


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What this thread waits for, without waiting. Others poll, and have to wait."""
    slept: list[float] = []
    wait, ours = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() == ours:
            slept.append(seconds)
        else:
            wait(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return slept
