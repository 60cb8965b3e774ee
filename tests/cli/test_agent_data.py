"""Where the agent finds a broker's streams by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.cli import agent
from coldstream.errors import InvalidSettingError


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's directory as a broker makes it, beside what else it makes."""
    monkeypatch.setattr(agent, "DATA_DIRECTORIES", str(tmp_path))
    for name in ("rabbit@host", "rabbit@host-plugins-expand"):
        (tmp_path / name).mkdir()
    for name in ("rabbit@host-feature_flags", "rabbit@host.pid"):
        (tmp_path / name).touch()
    return tmp_path / "rabbit@host"


def test_it_is_found_before_there_is_a_stream(node: Path) -> None:
    assert agent._find_data(None) == node / "stream"


def test_it_is_found_once_there_is_one_whatever_other_nodes_were_here(node: Path) -> None:
    (node / "stream").mkdir()
    (node.parent / "rabbit@former").mkdir()
    assert agent._find_data(None) == node / "stream"


def test_one_of_several_has_to_be_named(node: Path) -> None:
    (node.parent / "rabbit@former").mkdir()
    with pytest.raises(InvalidSettingError, match="this machine has 2"):
        agent._find_data(None)


def test_without_a_broker_it_has_to_be_named(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "DATA_DIRECTORIES", str(node / "none"))
    with pytest.raises(InvalidSettingError, match="this machine has 0"):
        agent._find_data(None)
