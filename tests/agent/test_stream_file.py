"""What the agent remembers of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.agent.stream_file import PendingLoss, RememberedStream, StreamFile, Witness
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Epoch, Offset

LIFE = Incarnation("__orders_1763700000000000000")
BY = Witness(ChunkId(49), Epoch(3))
MEMORY = RememberedStream(
    StreamId("vhost/№1", "заказы", LIFE), Offset(50), (PendingLoss(Offset(1), Offset(2), "why"),), BY
)


@pytest.mark.parametrize("durably", [True, False])
def test_what_was_saved_is_loaded(tmp_path: Path, durably):
    file = StreamFile(tmp_path / "streams", LIFE)
    file.save(MEMORY, durably=durably)
    assert StreamFile(tmp_path / "streams", LIFE).load() == MEMORY
    assert [path.name for path in (tmp_path / "streams").iterdir()] == [f"{LIFE}.json"]


def test_nothing_is_remembered_of_a_stream_never_seen(tmp_path: Path):
    assert StreamFile(tmp_path, LIFE).load() == RememberedStream()


def test_what_was_forgotten_is_gone(tmp_path: Path):
    file = StreamFile(tmp_path, LIFE)
    file.save(MEMORY)
    file.forget()
    file.forget()
    assert file.load() == RememberedStream()


def test_a_damaged_file_is_as_none(tmp_path: Path):
    file = StreamFile(tmp_path, LIFE)
    file.save(MEMORY)
    path = tmp_path / f"{LIFE}.json"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert file.load() == RememberedStream()
    for content in (b"[]", b"{}", b'{"version": 2}', b"\xff", whole.replace(b"50", b'"x"')):
        path.write_bytes(content)
        assert file.load() == RememberedStream()


def test_a_crash_between_leaves_what_was_there(tmp_path: Path):
    file = StreamFile(tmp_path, LIFE)
    file.save(MEMORY)
    (tmp_path / f"{LIFE}.new").write_bytes(b'{"version": 1, "str')
    assert file.load() == MEMORY
