"""A stream on disk, and the archive that it must end in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.segments import MemoryArchive, write_stream


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_stream(tmp_path / "stream")
    return tmp_path / "stream"


@pytest.fixture
def expected(directory: Path) -> tuple[object, ...]:
    archive = MemoryArchive()
    archive.announce(directory)
    return archive.state()
