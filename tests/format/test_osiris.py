"""Logs that osiris writes and reads itself, read by this package: chunk by chunk the same."""

from __future__ import annotations

import random

import pytest

from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.index import IndexRecord, iter_index
from coldstream.format.segment import SEGMENT_HEADER_BYTES, first_offset_of
from tests.support.golden import golden_logs
from tests.support.osiris import Batch, ChunkToWrite, OsirisChunk


def random_chunk(rng: random.Random, epoch: int) -> ChunkToWrite:
    timestamp = rng.choice([0, -1, 1_763_700_000_000 + rng.randrange(100_000), -(1 << 63), (1 << 63) - 1])
    if rng.random() < 0.2:
        return ChunkToWrite([rng.randbytes(30)], timestamp, type=rng.choice([1, 2]), epoch=epoch)
    entries = [
        Batch(rng.randrange(1, 500), rng.randrange(8), rng.randrange(1 << 32), rng.randbytes(rng.randrange(60)))
        if rng.random() < 0.2
        else rng.randbytes(rng.choice([0, 1, 5, 200]))
        for _ in range(rng.randrange(1, 20))
    ]
    return ChunkToWrite(entries, timestamp, epoch=epoch, trailer=rng.randbytes(rng.choice([0, 0, 25])))


def read(log) -> list[Chunk]:
    chunks = []
    for segment in sorted(log.directory.glob("*.segment")):
        content = memoryview(segment.read_bytes())[SEGMENT_HEADER_BYTES:]
        first = first_offset_of(segment.name)
        chunks += iter_chunks(content, source=segment.name, position=SEGMENT_HEADER_BYTES, expected=first)
    return chunks


def test_the_recorded_logs_still_read_as_osiris_reads_them(osiris):
    for log in golden_logs():
        assert osiris(log.directory).chunks() == log.chunks


@pytest.mark.parametrize("seed", range(3))
def test_whatever_osiris_writes_reads_as_osiris_reads_it(osiris, tmp_path, seed):
    rng = random.Random(seed)
    written = [random_chunk(rng, epoch=1 + number // 40) for number in range(150)]
    log = osiris(tmp_path / "log")
    log.write(written, max_segment_bytes=20_000, max_segment_chunks=25)

    chunks = read(log)
    assert [OsirisChunk.of(chunk) for chunk in chunks] == log.chunks()
    assert log.range() == (0, chunks[-1].header.next_offset - 1)
    assert len(list(log.directory.iterdir())) > 10
    for given, chunk in zip(written, chunks, strict=True):
        entries = [
            Batch(entry.records, entry.compression, entry.uncompressed_bytes, bytes(entry.data))
            if isinstance(entry, SubBatch)
            else bytes(entry)
            for entry in iter_entries(chunk, source="log")
        ]
        assert entries == given.entries
        assert bytes(chunk.trailer) == given.trailer


def test_the_index_that_osiris_writes_names_every_chunk(osiris, tmp_path):
    rng = random.Random(0)
    log = osiris(tmp_path / "log")
    log.write((random_chunk(rng, epoch=7) for _ in range(60)), max_segment_chunks=25)
    indexed = []
    for index in sorted(log.directory.glob("*.index")):
        with index.open("rb") as file:
            indexed += iter_index(file, source=index.name)
    assert indexed == [IndexRecord.of(chunk.header, chunk.position) for chunk in read(log)]
