"""Batches of bounded size, whatever is in the chunks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from coldstream.errors import BadLengthError
from coldstream.format.amqp import message
from coldstream.format.chunk import iter_chunks
from coldstream.format.compression import Compression, compress
from coldstream.format.entry import SubBatch, simple_entry
from coldstream.format.writer import make_chunk
from coldstream.rows import batches as module
from coldstream.rows.batches import batches
from coldstream.rows.schema import SCHEMA
from coldstream.units import KIB, MIB, ChunkId, Epoch, Offset, TimestampMs
from tests.support.amqp_samples import encode
from tests.support.rows import TIME

pytestmark = pytest.mark.usefixtures("decoding")

GIB = 1024 * MIB


def packed(published: bytes, records: int) -> SubBatch:
    data = simple_entry(published) * records
    small = compress(Compression.ZSTD, data)
    return SubBatch(Compression.ZSTD, records, len(data), memoryview(small), 0)


def as_batches(
    entries: Sequence[bytes | SubBatch],
    columns: Sequence[str] = SCHEMA.names,
    *,
    start: int = 0,
    end: int | None = None,
) -> Iterator[pa.RecordBatch]:
    header, data = make_chunk(entries, chunk_id=ChunkId(0), timestamp=TimestampMs(TIME), epoch=Epoch(1))
    last = header.next_offset if end is None else Offset(end)
    yield from batches(iter_chunks(data, source="x"), "orders", columns, start=Offset(start), end=last, source="x")


def offsets(found: Sequence[pa.RecordBatch]) -> list[int]:
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize(
    "published", [encode(body=b"x" * 300), encode(body=b"x" * 300, application_properties={"k": 1})]
)
def test_the_bytes_of_a_batch_are_bounded(published: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.rows.batches.BATCH_BYTES", 1000)
    found = list(as_batches([published] * 20, start=2, end=19))
    assert offsets(found) == list(range(2, 19))
    assert {batch.num_rows for batch in found} == {3, 2}


def test_a_message_larger_than_a_batch_is_a_batch_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.rows.batches.BATCH_BYTES", 1000)
    for more in ({}, {"application_properties": {"k": 1}}):
        sizes = [10, 5000, 10, 10, 5000]
        found = list(as_batches([encode(body=b"x" * size, **more) for size in sizes]))
        assert [batch.num_rows for batch in found] == [1, 1, 2, 1]
        assert [len(value) for batch in found for value in batch.column("value").to_pylist()] == sizes


@pytest.mark.parametrize(
    ("entries", "columns"),
    [
        ([encode(body=b"x")] * 1000, ("offset", "value")),
        ([packed(encode(body=b"x"), 100)] * 10, ("offset", "value")),
        ([packed(encode(body=b"x"), 100)] * 10, ("offset", "chunk_timestamp")),
    ],
    ids=["plain", "decoded", "not looked at"],
)
def test_the_rows_of_a_batch_are_bounded(
    entries: list[bytes | SubBatch], columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BATCH_ROWS", "DECODED_ROWS"):
        monkeypatch.setattr(f"coldstream.rows.batches.{name}", 64)
    found = list(as_batches(entries, columns, start=5, end=995))
    assert offsets(found) == list(range(5, 995))
    assert [batch.num_rows for batch in found] == [64] * 15 + [30]


@pytest.mark.parametrize("body", [b"x" * 101, {"k": "x" * 101}])
def test_a_cell_that_no_table_can_hold_is_named(body: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.rows.cells.MAX_CELL_BYTES", 100)
    small, large = encode(body=b"x", application_properties={"k": 1}), encode(value=body)
    with pytest.raises(BadLengthError, match=r"x, message at offset 1 .* expected at most 100 bytes, found 1\d\d"):
        list(as_batches([small, large]))


def many_bytes() -> int:
    """Read 2.2 GiB of values out of 0.2 MB, more than one array can have."""
    entries = [packed(encode(body=bytes(MIB)), 16) for _ in range(141)]
    assert sum(len(entry.data) for entry in entries) < 300 * KIB
    return sum(batch.num_rows for batch in as_batches(entries, ("value",)))


def many_rows() -> int:
    """Read 20 million rows out of a few KiB, of which only the headers are looked at."""
    return sum(batch.num_rows for batch in as_batches([packed(b"", 65_535)] * 310, ("offset", "chunk_timestamp")))


def peak_of(read: Callable[[], int], *, natively: bool) -> tuple[int, int]:
    """Return what was read, by one of the implementations, and by how many bytes the process grew."""
    if not natively:
        module._native, message._messages = None, message.messages_in_python
    list(as_batches([encode(body=b"x"), packed(b"y", 3)]))  # what is made once
    before = resident_bytes()
    return read(), resident_bytes() - before


def resident_bytes() -> int:
    """Return the most that this process has had in memory."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * KIB


@pytest.mark.parametrize(("read", "rows"), [(many_bytes, 141 * 16), (many_rows, 310 * 65_535)])
def test_memory_is_that_of_a_batch_however_much_is_packed(read: Callable[[], int], rows: int) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        found, grown_bytes = child.submit(peak_of, read, natively=module._native is not None).result()
    assert found == rows
    assert grown_bytes < 160 * MIB
