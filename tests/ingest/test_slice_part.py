"""A part of a slice, read in blocks as the SDK reads a file."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_CUR, SEEK_END, BytesIO
from pathlib import Path
from zlib import crc32

import pytest

from coldstream.errors import TruncatedError
from coldstream.ingest.slice_part import SlicePart

BLOCK_BYTES = 1000
HEAD = b"header"
DATA = random.Random(1).randbytes(5500)


@pytest.fixture(autouse=True)
def blocks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.ingest.slice_part.BLOCK_BYTES", BLOCK_BYTES)


@contextmanager
def part_of(path: Path, head: bytes = HEAD, start: int = 500, end: int = 5000) -> Iterator[SlicePart]:
    with path.open("rb") as file:
        yield SlicePart(file.fileno(), str(path), head, start, end)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize("head", [HEAD, b""])
def test_it_is_a_file_of_its_bytes_in_blocks_of_its_own_size(path: Path, head: bytes) -> None:
    whole = head + DATA[500:5000]
    with part_of(path, head) as part:
        assert (len(part), part.checksum(), part.tell()) == (len(whole), crc32(whole), 0)
        blocks = [bytes(block) for block in iter(lambda: part.read(16), b"")]
        assert b"".join(blocks) == whole
        assert max(map(len, blocks)) == BLOCK_BYTES
        assert bytes(part) == whole
        assert part.read(0) == b""


def test_it_is_read_again_from_any_place(path: Path) -> None:
    with part_of(path) as part:
        file = BytesIO(HEAD + DATA[500:5000])
        for place in ((0, SEEK_END), (3,), (2, SEEK_CUR), (-5, SEEK_END), (6,), (7,), (2000,), (0,)):
            assert part.seek(*place) == file.seek(*place) == part.tell()
            assert part.read() == file.read()
            part.seek(*place), file.seek(*place)


def test_a_block_is_not_kept_by_who_has_sent_it(path: Path) -> None:
    with part_of(path, b"") as part:
        first = part.read(1)
        part.read(1)
        assert bytes(first) == DATA[1500:2500], "memory is reused"


def test_a_file_that_ends_inside_the_slice_is_told_with_the_place(path: Path) -> None:
    os.truncate(path, 2400)
    with part_of(path) as part, pytest.raises(TruncatedError) as caught:
        part.checksum()
    assert (caught.value.source, caught.value.position) == (str(path), 1500)
    assert (caught.value.expected, caught.value.found) == (3500, 900)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels are not told")
def test_the_kernel_is_told_that_what_was_sent_is_not_needed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *advice: told.append(advice))
    with part_of(path) as part:
        part.checksum()
        assert told == []
        part.forget()
    assert told == [(500, 4500, os.POSIX_FADV_DONTNEED)]
