"""Stored chunks are verified by the native module, or by Python: the same chunks and the same errors."""

from __future__ import annotations

from random import Random

import pytest

from coldstream.errors import BadCrcError, CorruptionError
from coldstream.format import chunk, stored
from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.format.stored import StoredChunks
from coldstream.units import Offset
from tests.support.native import native_module
from tests.support.random_messages import FIRST, damaged, random_chunk_bytes


def made(random: Random) -> tuple[bytes, Offset]:
    """Return chunks, and the offset after them."""
    whole, following = b"", FIRST
    for _ in range(random.randrange(1, 5)):
        data = random_chunk_bytes(random, chunk_id=following)
        following = ChunkHeader.from_bytes(data, source="made", position=0).next_offset
        whole += data
    return whole, Offset(following)


def read(content: StoredChunks) -> tuple[list[Chunk], tuple[type, str] | None]:
    """Return the chunks, and the error after them."""
    found: list[Chunk] = []
    try:
        found.extend(content)
    except CorruptionError as err:
        return found, (type(err), str(err))
    return found, None


def test_chunks_and_errors_are_the_same_with_the_native_module_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    native = native_module()
    for seed in range(600):
        random = Random(seed)
        whole, following = made(random)
        if random.random() < 0.5:
            whole = damaged(random, whole)
        view = memoryview(random.choice((bytes, bytearray))(b"before" + whole + b"after"))[6:-5]
        following = Offset(following + (random.random() < 0.05))
        content = StoredChunks(view, Offset(FIRST - (random.random() < 0.05)), following, "källa", 77)
        monkeypatch.setattr(stored, "NATIVE", None)
        expected = read(content)
        monkeypatch.setattr(stored, "NATIVE", native)
        assert read(content) == expected, f"seed {seed}"


def test_no_crc_is_compared_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    native_module()
    whole, following = made(Random(5))
    monkeypatch.setattr(chunk, "crc32", lambda data: pytest.fail("the native module did that"))
    assert read(StoredChunks(memoryview(whole), Offset(FIRST), following, "x", 0))[1] is None


@pytest.mark.parametrize("has_native", [False, True])
def test_a_damaged_last_byte_of_the_last_chunk_is_found(has_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    monkeypatch.setattr(stored, "NATIVE", native_module() if has_native else None)
    whole, following = made(Random(7))
    last = bytearray(whole)
    found, _ = read(StoredChunks(memoryview(whole), Offset(FIRST), following, "x", 0))
    last[found[-1].position + found[-1].header.total_bytes - found[-1].header.trailer_bytes - 1] ^= 1
    assert read(StoredChunks(memoryview(bytes(last)), Offset(FIRST), following, "x", 0))[1][0] is BadCrcError  # type: ignore[index]
