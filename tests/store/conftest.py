from __future__ import annotations

import pytest

from coldstream.store.memory import MemoryObjects, MemoryTable
from coldstream.store.ports import ManifestTable, ObjectStore


@pytest.fixture(params=["memory", "dynamodb"])
def table(request: pytest.FixtureRequest) -> ManifestTable:
    """Every implementation of the port, in turn."""
    return MemoryTable() if request.param == "memory" else request.getfixturevalue("dynamo_table")


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Every implementation of the port, in turn. The parts of multipart uploads may be small."""
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    return MemoryObjects() if request.param == "memory" else request.getfixturevalue("s3_objects")
