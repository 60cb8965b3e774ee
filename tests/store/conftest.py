from __future__ import annotations

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
