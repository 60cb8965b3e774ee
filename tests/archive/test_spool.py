"""Spools: what comes in pieces is one object on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import pytest

from coldstream.archive import spool
from coldstream.archive.spool import PlainSpool
from coldstream.errors import UnavailableError


def test_pieces_of_any_size_are_one_object_in_order() -> None:
    random = Random(1)
    sizes = [random.choice((0, 1, 48, 5000, 70_000, spool.WRITE_BYTES)) for _ in range(300)]
    pieces = [random.randbytes(size) for size in (*sizes, *[1] * 2 * spool.MAX_PIECES)]
    plain = PlainSpool(None)
    for piece in pieces:
        plain.write(memoryview(piece))
    whole = b"".join(pieces) + b"footer"
    with plain.finish(b"footer", len(whole), 0, points=0).body as body:
        assert body.read() == whole


def test_few_writes_take_many_pieces_and_memory_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def writev(fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        taken.append(sum(map(len, buffers)))
        return taken[-1]

    monkeypatch.setattr(os, "writev", writev)
    plain = PlainSpool(None)
    for _ in range(160):
        plain.write(bytes(spool.WRITE_BYTES // 16))
    plain.discard()
    assert taken == [spool.WRITE_BYTES] * 10


def test_a_disk_that_takes_a_part_is_given_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def writev(fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        return write(fd, b"".join(buffers)[:1000])

    monkeypatch.setattr(os, "writev", writev)
    pieces = [Random(2).randbytes(size) for size in (999, 1, 1000, 2500, 3)]
    plain = PlainSpool(None)
    for piece in pieces:
        plain.write(piece)
    with plain.finish(b"", 0, 0, points=0).body as body:
        assert body.read() == b"".join(pieces)


def test_a_full_disk_makes_the_fragment_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def writev(fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", writev)
    plain = PlainSpool(None)
    with pytest.raises(UnavailableError, match="No space left"):
        plain.write(bytes(spool.WRITE_BYTES))
    plain.discard()
