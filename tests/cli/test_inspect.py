from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from coldstream.format.fragment import FRAGMENT_TRAILER_BYTES
from coldstream.format.seekable import FrameSize, SeekTable, compress_frame
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import SegmentWriter
from coldstream.units import ByteRange, TimestampMs
from tests.cli.conftest import Cli, amqp
from tests.support.golden import GoldenLog, golden_logs
from tests.support.segments import MemoryArchive, write_stream

HEADS = ["byte", "chunk", "type", "records", "entries", "timestamp", "epoch", "bloom", "+", "data", "+", "trailer"]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of two user chunks and a tracking chunk between them."""
    with SegmentWriter(tmp_path) as writer:
        writer.write([amqp(b"one"), amqp(b"\xff\x00")], timestamp=TimestampMs(1_763_700_000_000))
        tracking = [TrackingRecord(TrackingType.OFFSET, b"consumer\x1b", 1)]
        writer.write(timestamp=TimestampMs(1_763_700_000_001), tracking=tracking)
        writer.write([b"no AMQP"], timestamp=TimestampMs(1_763_700_000_002))
    return tmp_path / f"{0:020}.segment"


@pytest.fixture
def fragment(tmp_path: Path) -> Path:
    """The first fragment of an archived stream."""
    write_stream(tmp_path / "stream")
    archive = MemoryArchive()
    archive.announce(tmp_path / "stream")
    entry = archive.table.log_from_offset(archive.stream.incarnation, 0, 1).entries[0]
    path = tmp_path / "some.fragment"
    path.write_bytes(archive.objects.get_range(entry.key, ByteRange(0, entry.object_bytes)).data)
    return path


def test_a_segment_is_shown_chunk_by_chunk(cli: Cli, segment: Path) -> None:
    done = cli("inspect", segment)
    assert (done.code, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[:4] == [
        HEADS,
        ["8", "0", "user", "2", "2", "2025-11-21T04:40:00.000Z", "1", "0", "+", "29", "+", "0"],
        ["85", "2", "tracking", "delta", "1", "1", "2025-11-21T04:40:00.001Z", "1", "0", "+", "23", "+", "0"],
        ["156", "3", "user", "1", "1", "2025-11-21T04:40:00.002Z", "1", "0", "+", "11", "+", "0"],
    ]
    summary = {tuple(row[:-1]): row[-1] for row in rows[5:]}
    assert summary["what",] == "segment"
    assert (summary["chunks",], summary["records",], summary["messages",]) == ("3", "4", "3")
    assert (summary["first", "offset"], summary["next", "offset"]) == ("0", "4")


def test_messages_and_tracking_are_shown_with_their_chunks(cli: Cli, segment: Path) -> None:
    lines = [line.strip() for line in cli("inspect", segment, "--messages").out.splitlines()]
    assert lines[2] == "0  one"
    assert lines[3] == "1  {'base64': '/wA='}"
    assert lines[5] == "offset  consumer\\x1b at 1"
    assert lines[7] == "3  no AMQP"


def test_a_message_too_long_for_a_line_is_cut_and_its_length_told(cli: Cli, tmp_path: Path) -> None:
    with SegmentWriter(tmp_path) as writer:
        writer.write([amqp(b"x" * 5000)], timestamp=TimestampMs(0))
    assert f"{'x' * 100}… (5000 characters)" in cli("inspect", tmp_path / f"{0:020}.segment", "--messages").out


def test_the_json_form_has_a_line_for_each_thing(cli: Cli, segment: Path) -> None:
    items = cli("inspect", segment, "--messages", "--output", "json").json
    assert [item["what"] for item in items] == [
        *("chunk", "message", "message", "chunk", "tracking", "chunk", "message", "segment")
    ]
    assert items[0]["crc32"] == f"{int(items[0]['crc32'], 16):08x}"
    assert (items[1]["offset"], items[1]["body"]) == (0, "one")
    assert items[6]["raw"] == "no AMQP"
    assert items[-1]["bytes"] == segment.stat().st_size


def test_an_index_is_shown_record_by_record(cli: Cli, segment: Path) -> None:
    index = segment.with_suffix(".index")
    rows = [line.split() for line in cli("inspect", index).out.splitlines()]
    assert rows[0] == ["chunk", "type", "timestamp", "epoch", "byte"]
    assert [(row[0], row[-1]) for row in rows[1:4]] == [("0", "8"), ("2", "85"), ("3", "156")]
    assert cli("inspect", index, "--output", "json").json[-1] == {
        "what": "index",
        "file": index.name,
        "records": 3,
        "bytes": index.stat().st_size,
    }


def test_a_fragment_is_reported_from_a_segment_and_its_trailer_shown(cli: Cli, fragment: Path) -> None:
    items = cli("inspect", fragment.rename(fragment.with_name("renamed")), "--output", "json").json
    chunks = [item for item in items if item["what"] == "chunk"]
    summary = items[-1]
    assert summary["what"] == "fragment"
    assert (summary["chunks"], summary["sequence_number"], summary["chunks_before"]) == (len(chunks), 0, 0)
    assert summary["data_bytes"] == sum(
        48 + item["bloom_bytes"] + item["data_bytes"] + item["trailer_bytes"] for item in chunks
    )
    assert summary["next_offset"] == chunks[-1]["next_offset"]


@pytest.mark.parametrize("log", golden_logs(), ids=lambda log: log.stream)
def test_what_a_real_broker_wrote_is_shown_to_the_end(cli: Cli, log: GoldenLog) -> None:
    for path in log.segments:
        items = cli("inspect", path, "--messages", "--output", "json").json
        assert items[-1]["what"] == "segment"
        assert items[-1]["messages"] == sum(item["what"] == "message" for item in items)
    last = log.chunks[-1]
    assert items[-1]["next_offset"] == last.chunk_id + last.records


def cut(data: bytearray) -> None:
    del data[-5:]


def flip(at: int) -> Callable[[bytearray], None]:
    def damage(data: bytearray) -> None:
        data[at] ^= 1

    return damage


@pytest.mark.parametrize(
    ("damage", "shown", "what"),
    [
        (cut, 2, "at byte 156: segment ends inside a chunk"),
        (flip(150), 1, "at byte 85: CRC-32"),
        (flip(85), 1, "at byte 85: chunk version"),
        (flip(0), 0, "at byte 0: magic"),
    ],
)
def test_a_damaged_segment_is_shown_up_to_the_damage(
    cli: Cli, segment: Path, damage: Callable[[bytearray], None], shown: int, what: str
) -> None:
    data = bytearray(segment.read_bytes())
    damage(data)
    segment.write_bytes(data)
    done = cli("inspect", segment, "--output", "json")
    assert done.code == 5
    assert [item["what"] for item in done.json] == ["chunk"] * shown
    assert f"coldstream: {segment.name} {what}" in done.err


def test_a_segment_under_anothers_name_is_refused(cli: Cli, segment: Path) -> None:
    done = cli("inspect", segment.rename(segment.with_name(f"{7:020}.segment")))
    assert done.code == 5
    assert "chunk id: expected 7, found 0" in done.err


def test_a_segment_without_a_chunk_is_empty(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "empty.segment"
    path.write_bytes(SEGMENT_HEADER)
    (item,) = cli("inspect", path, "--output", "json").json
    assert (item["chunks"], item["first_offset"], item["next_offset"]) == (0, None, None)
    assert cli("inspect", path).code == 0


def test_an_empty_file_is_cut_short(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cli("inspect", tmp_path / "empty").code == 5


def test_a_fragment_whose_trailer_is_damaged_is_not_taken_for_a_segment(cli: Cli, fragment: Path) -> None:
    data = bytearray(fragment.read_bytes())
    data[-1] ^= 1
    fragment.write_bytes(data)
    done = cli("inspect", fragment)
    assert done.code == 5
    assert "fragment trailer" in done.err


def test_a_fragment_whose_index_says_otherwise_than_its_chunks_is_damaged(cli: Cli, fragment: Path) -> None:
    data = bytearray(fragment.read_bytes())
    second_timestamp = len(data) - FRAGMENT_TRAILER_BYTES - 20 + 15
    data[second_timestamp] ^= 1
    fragment.write_bytes(data)
    done = cli("inspect", fragment)
    assert done.code == 5
    assert "index record of a chunk" in done.err


@pytest.fixture
def compressed(fragment: Path) -> Path:
    """The same fragment, compressed as compaction does it."""
    data = fragment.read_bytes()
    cuts = [0, 8, 5000, len(data) - 300, len(data)]
    frames = [compress_frame(data[start:end]) for start, end in pairwise(cuts)]
    sizes = (FrameSize(len(frame), end - start) for frame, (start, end) in zip(frames, pairwise(cuts), strict=True))
    path = fragment.with_name("some.1.fragment")
    path.write_bytes(b"".join(frames) + SeekTable(tuple(sizes)).to_bytes())
    return path


def test_a_compressed_fragment_is_read_and_said_to_be_one(cli: Cli, fragment: Path, compressed: Path) -> None:
    *plain, plain_summary = cli("inspect", fragment, "--messages", "--output", "json").json
    *found, summary = cli("inspect", compressed, "--messages", "--output", "json").json
    assert found == plain
    assert summary == plain_summary | {
        "file": compressed.name,
        "bytes": compressed.stat().st_size,
        "encoding": "zstd-seekable",
        "identity_bytes": fragment.stat().st_size,
        "frames": 4,
    }


def test_a_compressed_fragment_that_is_cut_short_or_damaged_names_file_and_byte(cli: Cli, compressed: Path) -> None:
    data = compressed.read_bytes()
    for damaged in (data[:-1], data[:100], data[:40] + bytes([data[40] ^ 1]) + data[41:]):
        compressed.write_bytes(damaged)
        done = cli("inspect", compressed)
        assert done.code == 5
        assert f"{compressed.name} at byte" in done.err


def test_something_else_that_is_compressed_is_no_fragment(cli: Cli, tmp_path: Path) -> None:
    frame = compress_frame(b"something else")
    path = tmp_path / "other"
    path.write_bytes(frame + SeekTable((FrameSize(len(frame), 14),)).to_bytes())
    done = cli("inspect", path)
    assert done.code == 5
    assert "no fragment" in done.err
