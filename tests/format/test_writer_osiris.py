"""What SegmentWriter writes, compared byte for byte with what osiris writes of the same rounds."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch
from coldstream.format.index import INDEX_HEADER_BYTES, INDEX_RECORD_BYTES
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import SegmentWriter, make_sub_batch
from tests.support.osiris import Batch, Round

TYPES = {"sequence": TrackingType.SEQUENCE, "offset": TrackingType.OFFSET, "timestamp": TrackingType.TIMESTAMP}
SNAPSHOT = 2


def random_rounds(rng: random.Random, count: int) -> list[Round]:
    rounds = []
    timestamp = 1_763_700_000_000
    for number in range(count):
        timestamp += rng.randrange(-5, 50)
        entries = [random_entry(rng) for _ in range(rng.choice([0, 1, 1, 5, 30]))]
        tracking = [random_tracking(rng, timestamp) for _ in range(rng.choice([0, 0, 1, 4]))]
        rounds.append(Round(entries, timestamp, epoch=1 + number // 100, tracking=tracking))
    return rounds


def random_entry(rng: random.Random) -> bytes | Batch:
    if rng.random() < 0.2:
        packed = make_sub_batch([rng.randbytes(20)] * rng.randrange(1, 50), rng.choice(list(Compression)))
        return Batch(packed.records, packed.compression, packed.uncompressed_bytes, bytes(packed.data))
    return rng.randbytes(rng.choice([0, 1, 100, 400]))


def random_tracking(rng: random.Random, timestamp: int) -> tuple[str, bytes, int]:
    kind = rng.choice(list(TYPES))
    value = timestamp if kind == "timestamp" else rng.randrange(2000)
    return kind, rng.choice(["a", "b", "größe", "", "x" * 255]).encode(), value


def write(directory: Path, rounds: list[Round], **limits: int) -> None:
    directory.mkdir()
    with SegmentWriter(directory, **limits) as writer:
        for given in rounds:
            entries = [
                SubBatch(entry.compression, entry.records, entry.uncompressed_bytes, memoryview(entry.data), 0)
                if isinstance(entry, Batch)
                else entry
                for entry in given.entries
            ]
            tracking = [TrackingRecord(TYPES[kind], identity, value) for kind, identity, value in given.tracking]
            writer.write(entries, timestamp=given.timestamp, epoch=given.epoch, tracking=tracking)


def files(directory: Path) -> dict[str, bytes]:
    """The files of a log, with the timestamps of snapshots blanked: osiris takes those from its clock."""
    content = {path.name: bytearray(path.read_bytes()) for path in directory.iterdir()}
    for name, index in content.items():
        if not name.endswith(".index"):
            continue
        segment = content[name.replace(".index", ".segment")]
        for at in range(INDEX_HEADER_BYTES, len(index), INDEX_RECORD_BYTES):
            _, _, _, position, kind = struct.unpack_from(">QqQIB", index, at)
            if kind == SNAPSHOT:
                index[at + 8 : at + 16] = segment[position + 8 : position + 16] = bytes(8)
    return {name: bytes(data) for name, data in content.items()}


@pytest.mark.parametrize(
    ("seed", "limits"),
    [
        (1, {}),
        (2, {"max_segment_bytes": 3000}),
        (3, {"max_segment_chunks": 5}),
        (4, {"max_segment_bytes": 3000, "max_segment_chunks": 3}),
        (5, {"max_segment_chunks": 1}),
    ],
)
def test_the_writer_makes_the_files_that_osiris_makes(osiris, tmp_path, seed, limits):
    rounds = random_rounds(random.Random(seed), 250)
    osiris(tmp_path / "theirs").lead(rounds, **limits)
    write(tmp_path / "ours", rounds, **limits)
    theirs, ours = files(tmp_path / "theirs"), files(tmp_path / "ours")
    assert sorted(ours) == sorted(theirs)
    assert ours == theirs
