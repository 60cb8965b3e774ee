"""What several of the agent's tests begin with: a node or a replica in memory, and one stream's archiver beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.node import Node
from tests.support.replica import Replica
from tests.support.rig import Rig, make_quick


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have archivers wait less."""
    make_quick(monkeypatch)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node without a stream."""
    node = Node(tmp_path / "data")
    yield node
    node.close()


@pytest.fixture
def stream(tmp_path: Path) -> Replica:
    """A replica of a stream, whose cluster may go another way."""
    return Replica(tmp_path / "data")


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """An archiver of the replica that the test asks for as `stream`, or of a stream of a node."""
    if "stream" in request.fixturenames:
        stream: Replica = request.getfixturevalue("stream")
        return Rig(tmp_path, stream, stream)
    node: Node = request.getfixturevalue("node")
    return Rig(tmp_path, node, node.declare("orders"))
