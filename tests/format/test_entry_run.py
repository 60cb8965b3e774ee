"""The data of a chunk in runs: what they hold, and where they end."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from coldstream.errors import BadCountError, BadVersionError, CorruptionError
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.compression import Compression
from coldstream.format.entry_run import EntryRun, iter_entry_runs, message_runs, uncompressed_header
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.units import ChunkId, Epoch, TimestampMs
from tests.support.native import native_module

BATCH = make_sub_batch([b"b" * 10] * 3, Compression.GZIP)


def chunk_of(*entries: object) -> Chunk:
    _, data = make_chunk(entries, chunk_id=ChunkId(100), timestamp=TimestampMs(0), epoch=Epoch(1))  # type: ignore[arg-type]
    return next(iter_chunks(data, source="test"))


def runs_of(chunk: Chunk, *, max_bytes: int = 1000, max_records: int = 100) -> list[EntryRun]:
    return list(iter_entry_runs(chunk, max_bytes=max_bytes, max_records=max_records, source="test"))


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
    assert uncompressed_header(len(chunk.data), 2) + chunk.data == make_sub_batch([b"a", b"bb"]).to_bytes()


@pytest.mark.parametrize("seed", range(200))
def test_runs_and_errors_are_the_same_with_and_without_the_native_module(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = native_module()
    rng = Random(seed)
    entries: list[object] = [
        make_sub_batch([b"b"] * rng.randrange(1, 4), Compression.NONE)
        if rng.random() < 0.1
        else rng.randbytes(rng.choice([0, 3, 50, 700]))
        for _ in range(rng.randrange(1, 60))
    ]
    chunk = chunk_of(*entries)
    data = bytearray(chunk.data)
    for _ in range(rng.choice([0, 0, 1, 3])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    chunk = replace(chunk, data=memoryview(bytes(data))[: len(data) - rng.choice([0, 0, 0, 1])])
    bounds = {"max_bytes": rng.choice([1, 60, 1000]), "max_records": rng.choice([1, 3, 100])}

    def outcome(with_native: object) -> tuple[list[EntryRun], str]:
        monkeypatch.setattr("coldstream.format.entry_run.NATIVE", with_native)
        runs: list[EntryRun] = []
        try:
            for run in iter_entry_runs(chunk, source="test", **bounds):
                runs.append(run)  # noqa: PERF402  what came before an error counts, too
        except CorruptionError as err:
            return runs, repr(err)
        return runs, ""

    assert outcome(native) == outcome(None)


@pytest.mark.parametrize("with_native", [False, True])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_messages_are_cut_into_the_runs_of_a_chunk_that_has_them(
    *, with_native: bool, kind: type[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.format.entry_run.NATIVE", native_module() if with_native else None)
    given = [kind(b"x" * size) for size in (3, 0, 300, 5, 90, 2, 2, 2)]
    chunk = chunk_of(*map(bytes, given))
    found = list(message_runs(given, max_bytes=100, max_records=2))
    expected = runs_of(chunk, max_bytes=100, max_records=2)
    assert [records for _, records in found] == [run.next_offset - run.first_offset for run in expected]
    assert [bytes(data) for data, _ in found] == [bytes(chunk.data[run.start : run.end]) for run in expected]
    assert list(message_runs([], max_bytes=100, max_records=2)) == []


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
        runs_of(replace(chunk, data=memoryview(data)))


def test_an_entry_that_runs_past_the_data_is_an_error() -> None:
    chunk = chunk_of(b"a", b"bb")
    cut = Chunk(chunk.header, chunk.position, chunk.bloom, chunk.data[:-1], chunk.trailer)
    with pytest.raises(CorruptionError):
        runs_of(cut)
