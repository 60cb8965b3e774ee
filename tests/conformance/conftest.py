"""The archive as template.yaml deploys it, on the emulated AWS that COLDSTREAM_CONFORMANCE names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstream.format.segment import SEGMENT_HEADER
from coldstream.local.stack import EmulatedStack
from tests.support.deployed import DeployedArchive
from tests.support.golden import golden_logs


@pytest.fixture(scope="session")
def archive(aws: str) -> Iterator[DeployedArchive]:
    """A stack of its own for the run, with the functions running."""
    with EmulatedStack(inherited=os.environ, parameters={"FragmentBytes": "65536", "Prefix": "conformance/"}) as stack:
        deployed = DeployedArchive(stack)
        with deployed.resolver:
            yield deployed


@pytest.fixture(scope="session")
def rolled_logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recorded logs of a real broker, their last segments rolled, too: directories by stream."""
    directories = {}
    for log in golden_logs():
        directory = tmp_path_factory.mktemp(log.stream)
        for segment in log.segments:
            (directory / segment.name).write_bytes(segment.read_bytes())
        last = log.chunks[-1]
        (directory / f"{last.chunk_id + last.records:020}.segment").write_bytes(SEGMENT_HEADER)
        directories[log.stream] = directory
    return directories
