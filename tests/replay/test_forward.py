"""Archived chunks as entries to publish."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.errors import BadCountError, CorruptionError, InvalidInputError
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.compression import Compression
from coldstream.format.entry import SubBatch, iter_entries
from coldstream.format.writer import make_chunk, make_sub_batch
from coldstream.replay.forward import Entry, Frame, chunk_entries, in_frames
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

FIRST = 1000


def chunk(entries: list[bytes | SubBatch], kind: ChunkType = ChunkType.USER) -> Chunk:
    header, data = make_chunk(
        entries, chunk_id=ChunkId(FIRST), timestamp=TimestampMs(1), epoch=Epoch(1), kind=kind, bloom=b"", trailer=b""
    )
    return Chunk(header, 0, memoryview(b""), memoryview(data)[-header.data_bytes :], memoryview(b""))


def published(entries: list[Entry]) -> Chunk:
    """Make a chunk of what is published, as a broker does."""
    data = b"".join(piece for entry in entries for piece in (entry.head, entry.data))
    records = sum(entry.messages for entry in entries)
    header, _ = make_chunk([b""], chunk_id=ChunkId(0), timestamp=TimestampMs(1), epoch=Epoch(1))
    header = replace(header, entries=len(entries), records=records, data_bytes=len(data))
    return Chunk(header, 0, memoryview(b""), memoryview(data), memoryview(b""))


def raws(of: Chunk) -> list[bytes]:
    return [message.raw for message in messages(of, source="test")]


def any_entries(rng: random.Random, count: int) -> list[bytes | SubBatch]:
    def message() -> bytes:
        return rng.randbytes(rng.choice((0, 3, 90, 9000)))

    return [
        make_sub_batch([message() for _ in range(rng.randrange(1, 5))], rng.choice(list(Compression)))
        if rng.random() < 0.2
        else message()
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_range_of_a_chunk_is_what_a_consumer_gets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("coldstream.replay.forward.RUN_RECORDS", rng.choice((1, 2, 7, 1000)))
    archived = chunk(any_entries(rng, rng.randrange(1, 40)))
    whole, end = raws(archived), archived.header.next_offset
    for start in sorted({FIRST, end, *(rng.randrange(FIRST, end) for _ in range(6))}):
        for stop in sorted({end, *(rng.randrange(start, end + 1) for _ in range(4))}):
            entries = list(chunk_entries(archived, Offset(start), Offset(stop), source="test"))
            assert raws(published(entries)) == whole[start - FIRST : stop - FIRST]
            ids = [entry.publishing_id for entry in entries]
            assert ids == sorted(set(ids))
            assert ids[-1:] in ([], [stop])


@pytest.mark.parametrize("seed", range(10))
def test_where_runs_end_does_not_depend_on_where_one_begins(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr("coldstream.replay.forward.RUN_RECORDS", 5)
    archived = chunk(any_entries(rng, 60))
    end = archived.header.next_offset
    whole = list(chunk_entries(archived, Offset(0), end, source="test"))
    for entry in whole:
        rest = list(chunk_entries(archived, Offset(entry.publishing_id), end, source="test"))
        assert rest == [each for each in whole if each.publishing_id > entry.publishing_id]


def test_a_run_is_bounded_and_one_message_stays_alone() -> None:
    archived = chunk([bytes(20_000)] * 3 + [b"small"] * 2500)
    entries = list(chunk_entries(archived, Offset(0), archived.header.next_offset, source="test"))
    assert [entry.messages for entry in entries] == [1, 1, 1000, 1000, 501]
    assert all(isinstance(each, SubBatch) for each in list(iter_entries(published(entries), source="test"))[2:])


def test_tracking_is_not_published() -> None:
    archived = chunk([b"tracking"], ChunkType.TRACKING_DELTA)
    assert list(chunk_entries(archived, Offset(0), archived.header.next_offset, source="test")) == []


def test_a_chunk_that_contradicts_its_header_is_refused() -> None:
    archived = chunk([b"a", b"b"])
    for changed in (
        replace(archived, header=replace(archived.header, records=3, entries=3)),
        replace(archived, data=archived.data[:-1]),
        replace(archived, data=memoryview(bytes(archived.data) + b"\x00")),
    ):
        with pytest.raises(CorruptionError):
            list(chunk_entries(changed, Offset(0), changed.header.next_offset, source="test"))
    with pytest.raises(BadCountError):
        list(
            chunk_entries(
                replace(archived, header=replace(archived.header, records=3, entries=3)),
                Offset(0),
                Offset(9999),
                source="test",
            )
        )


def frames(sizes: list[int], max_bytes: int, max_messages: int | None = None) -> list[Frame]:
    entries = [Entry(number + 1, b"", bytes(size), 2) for number, size in enumerate(sizes)]
    return list(in_frames(entries, max_bytes, max_messages))


def test_frames_are_full_and_fit() -> None:
    found = frames([92] * 25 + [992], 1000)
    assert [frame.entries for frame in found] == [10, 10, 5, 1]
    assert [frame.last_id for frame in found] == [10, 20, 25, 26]
    assert all(frame.size_bytes == sum(map(len, frame.pieces)) <= 1000 for frame in found)
    assert sum(frame.messages for frame in found) == 52
    assert frames([], 1000) == []


@pytest.mark.parametrize(("most", "expected"), [(1, [1] * 5), (2, [1] * 5), (5, [2, 2, 1]), (100, [5])])
def test_frames_hold_no_more_messages_than_should_pass_at_a_time(most: int, expected: list[int]) -> None:
    assert [frame.entries for frame in frames([10] * 5, 1000, most)] == expected


def test_what_no_frame_can_hold_is_told() -> None:
    with pytest.raises(InvalidInputError, match="before offset 2"):
        frames([10, 993], 1000)
