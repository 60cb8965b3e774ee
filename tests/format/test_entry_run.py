"""The data of a chunk in runs: what they hold, and where they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import BadCountError, BadVersionError, CorruptionError
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry_run import EntryRun, iter_entry_runs, uncompressed_sub_batch
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, TimestampMs

BATCH = make_sub_batch([b"b" * 10] * 3, Compression.GZIP)


def chunk_of(*entries: object) -> Chunk:
    _, data = make_chunk(entries, chunk_id=ChunkId(100), timestamp=TimestampMs(0), epoch=Epoch(1))  # type: ignore[arg-type]
    return next(iter_chunks(data, source="test"))


def runs_of(
    chunk: Chunk, data: bytes | None = None, *, max_bytes: int = 1000, max_records: int = 100
) -> list[EntryRun]:
    data = bytes(chunk.data) if data is None else data
    return list(iter_entry_runs(chunk, data, max_bytes=max_bytes, max_records=max_records, source="test"))


def spans(runs: list[EntryRun]) -> list[tuple[int, int, bool]]:
    return [(run.first_offset, run.next_offset, run.is_sub_batch) for run in runs]


def test_messages_and_sub_batches_are_runs_that_make_up_the_data() -> None:
    chunk = chunk_of(b"a", b"b", BATCH, BATCH, b"c")
    runs = runs_of(chunk)
    assert spans(runs) == [(100, 102, False), (102, 105, True), (105, 108, True), (108, 109, False)]
    assert [run.start for run in runs] == [0, *(run.end for run in runs[:-1])]
    assert runs[-1].end == len(chunk.data)


def test_runs_end_at_either_bound_and_a_larger_message_goes_alone() -> None:
    assert spans(runs_of(chunk_of(*[b"a"] * 5), max_records=2)) == [
        (100, 102, False),
        (102, 104, False),
        (104, 105, False),
    ]
    large = chunk_of(b"a", b"x" * 50, b"b")
    assert spans(runs_of(large, max_bytes=20)) == [(100, 101, False), (101, 102, False), (102, 103, False)]


def test_a_run_is_the_data_of_an_uncompressed_sub_batch() -> None:
    chunk = chunk_of(b"a", b"bb")
    assert uncompressed_sub_batch(chunk.data, 2) == make_sub_batch([b"a", b"bb"]).to_bytes()


@pytest.mark.parametrize("number", [1, 3])
def test_another_number_of_entries_than_the_header_has_is_an_error(number: int) -> None:
    chunk = chunk_of(BATCH, b"a")
    miscounted = replace(chunk, header=replace(chunk.header, entries=number))
    with pytest.raises(BadCountError):
        runs_of(miscounted)


def test_reserved_bits_of_a_sub_batch_are_not_forwarded_to_who_would_refuse_them() -> None:
    chunk = chunk_of(b"a", BATCH)
    data = bytearray(chunk.data)
    data[5] |= 1
    with pytest.raises(BadVersionError):
        runs_of(replace(chunk, data=memoryview(data)), bytes(data))


def test_an_entry_that_runs_past_the_data_is_an_error() -> None:
    chunk = chunk_of(b"a", b"bb")
    cut = Chunk(chunk.header, chunk.position, chunk.bloom, chunk.data[:-1], chunk.trailer)
    with pytest.raises(CorruptionError):
        runs_of(cut)
