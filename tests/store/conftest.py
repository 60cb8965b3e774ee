from __future__ import annotations

import threading
import time

import pytest

from coldstream.store.memory import MemoryObjects, MemoryTable
from coldstream.store.ports import ManifestTable, ObjectStore


@pytest.fixture(params=["memory", "dynamo", "lean"])
def table(request: pytest.FixtureRequest) -> ManifestTable:
    """Every implementation of the port, in turn."""
    return MemoryTable() if request.param == "memory" else request.getfixturevalue(f"{request.param}_table")


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest) -> ObjectStore:
    """Every implementation of the port, in turn."""
    return MemoryObjects() if request.param == "memory" else request.getfixturevalue("s3_objects")


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
