"""The native module makes the rows that Python makes, and raises what it raises, whatever is in the chunks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from coldstream.errors import CorruptionError
from coldstream.format.chunk import Chunk, ChunkHeader, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.stored import StoredChunks
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.rows import batches as module
from coldstream.rows.batches import batches, batches_in
from coldstream.rows.schema import SCHEMA, schema_of
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.support.native import native_module
from tests.support.random_messages import FIRST, NOW, damaged, random_chunk, random_chunk_bytes

SEEDS = 400
BLOCKS = 4


def read(found: Iterator[pa.RecordBatch], columns: list[str]) -> tuple[list[dict[str, Any]], tuple[type, str] | None]:
    """Return the rows, and the error after them."""
    rows: list[dict[str, Any]] = []
    try:
        for batch in found:
            assert batch.schema == schema_of(columns)
            batch.validate(full=True)
            rows.extend(batch.to_pylist())
    except CorruptionError as err:
        return rows, (type(err), str(err))
    return rows, None


def check(seed: int, read_all: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_native", None)
    expected, expected_error = read_all()
    patch.setattr(module, "_native", native_module())
    found, error = read_all()
    assert error == expected_error, f"seed {seed}"
    # How many rows come before an error depends on where batches end.
    common = min(len(found), len(expected)) if error else len(expected)
    assert found[:common] == expected[:common], f"seed {seed}"
    assert error or len(found) == common, f"seed {seed}"


def columns_of(random: Random) -> list[str]:
    return random.choice(([*SCHEMA.names], random.sample(SCHEMA.names, random.randrange(1, 6))))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_rows_and_errors_of_random_and_damaged_chunks_are_those_of_python(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        random = Random(seed)
        chunks: list[Chunk] = [random_chunk(random) for _ in range(random.randrange(1, 3))]
        columns = columns_of(random)
        start, end = Offset(FIRST + random.choice((-5, 0, 0, 2, 9))), Offset(FIRST + random.choice((1, 5, 100, 100)))
        monkeypatch.setattr(module, "BATCH_ROWS", random.choice((1, 2, 7, 1000)))
        monkeypatch.setattr(module, "DECODED_ROWS", random.choice((1, 2, 1000)))
        monkeypatch.setattr(module, "BATCH_BYTES", random.choice((100, 1000, 1 << 20)))
        check(
            seed,
            lambda chunks=chunks, columns=columns, start=start, end=end: read(
                batches(chunks, "orders", columns, start=start, end=end, source="källa"), columns
            ),
            monkeypatch,
        )


@pytest.mark.parametrize("block", range(BLOCKS))
def test_rows_and_errors_of_stored_bytes_are_those_of_python(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        random = Random(seed)
        whole, following = b"", FIRST
        for _ in range(random.randrange(1, 5)):
            data = random_chunk_bytes(random, chunk_id=following)
            following = ChunkHeader.from_bytes(data, source="made", position=0).next_offset
            whole += data
        if random.random() < 0.4:
            whole = damaged(random, whole)
        view = memoryview(random.choice((bytes, bytearray))(b"before" + whole))[6:]
        columns = columns_of(random)
        content = StoredChunks(view, Offset(FIRST), Offset(following + (random.random() < 0.05)), "källa", 77)
        limits = {
            "start": Offset(random.choice((0, FIRST, FIRST + 5))),
            "end": Offset(random.choice((FIRST + 4, following, following + 9))),
            "earliest": random.choice((0, 0, NOW)),
            "latest": random.choice((NOW, 1 << 63)),
        }
        limits["latest"] = min(limits["latest"], (1 << 63) - 1)
        check(
            seed,
            lambda content=content, columns=columns, limits=limits: read(
                batches_in(content, "orders", columns, **limits), columns
            ),
            monkeypatch,
        )


def test_one_message_in_doubt_leaves_the_others_to_the_module() -> None:
    native = native_module()
    chunk = next(iter_chunks(random_chunk_bytes(Random(1)), source="x"))
    rows = native.NativeRows(
        chunk.data,
        ["value", "application_properties"],
        None,
        verified=[(0, len(chunk.data), FIRST, chunk.header.entries, chunk.header.records, NOW)],
        first_offset=FIRST,
        start=0,
        end=1 << 62,
        earliest=0,
        latest=NOW,
        max_rows=1000,
        max_bytes=1 << 20,
        max_cell_bytes=0,
        max_declined=1000,
    )
    found = rows.next_batch()
    assert rows.next_batch() is None
    assert rows.declined is None
    assert {number for number, *_ in found.declined} <= set(range(found.rows))


def test_rows_of_a_chunk_larger_than_a_cache_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    entries: list[bytes | SubBatch] = [random.randbytes(random.randrange(3000)) for _ in range(400)]
    entries[200] = make_sub_batch([random.randbytes(1000) for _ in range(300)], Compression.NONE)
    _, data = make_chunk(entries, chunk_id=ChunkId(FIRST), timestamp=TimestampMs(NOW), epoch=Epoch(1))
    following = ChunkHeader.from_bytes(data, source="made", position=0).next_offset
    content = StoredChunks(memoryview(data), Offset(FIRST), following, "källa", 0)
    columns = ["value", "offset"]
    check(0, lambda: read(batches_in(content, "s", columns, start=Offset(0), end=following), columns), monkeypatch)


def test_whole_numbers_are_the_texts_that_python_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [0, *(10**power + more for power in range(1, 20) for more in (-1, 0)), (1 << 64) - 1]
    signed = [-1, -9, -10, -(1 << 63), (1 << 63) - 1]
    values = [b"\x80" + number.to_bytes(8) for number in numbers]
    values += [b"\x81" + number.to_bytes(8, signed=True) for number in signed]
    pairs = b"".join(b"\xa1\x03%03d" % number + value for number, value in enumerate(values))
    count = (2 * len(values)).to_bytes(4)
    message = b"\x00\x53\x74\xd1" + (4 + len(pairs)).to_bytes(4) + count + pairs
    _, data = make_chunk([message], chunk_id=ChunkId(FIRST), timestamp=TimestampMs(NOW), epoch=Epoch(1))
    (chunk,) = iter_chunks(data, source="made")
    columns = ["application_properties"]
    span = {"start": Offset(0), "end": chunk.header.next_offset, "source": "källa"}
    check(0, lambda: read(batches([chunk], "s", columns, **span), columns), monkeypatch)
    (row,), _ = read(batches([chunk], "s", columns, **span), columns)
    assert [text for _, text in row["application_properties"]] == [str(number) for number in (*numbers, *signed)]
