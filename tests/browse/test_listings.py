"""What lies beneath messages: fragments, chunks and entries; and messages to save. What they show, and cost."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from coldstream.browse.chunks import list_chunks
from coldstream.browse.download import BLOCK_BYTES, DownloadPart, MessageDownload, open_download
from coldstream.browse.entries import list_entries
from coldstream.browse.fragments import fragment_row, list_fragments
from coldstream.browse.stream_views import ChunkListing, ChunkRow
from coldstream.errors import (
    CorruptionError,
    GapError,
    InvalidQueryError,
    NotFoundError,
    StreamNotFoundError,
)
from coldstream.format.chunk import ChunkType
from coldstream.format.compression import Compression
from coldstream.manifest.entry import Encoding, StorageClass
from coldstream.manifest.groups import CompactionPolicy, plan_groups
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.prices import storage_usd
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.amqp_samples import encode
from tests.support.archive import STREAM, Spec, holes, random_archive, steady
from tests.support.browsed import MessageArchive, MillionObjects, MillionTable, data_message
from tests.support.compaction import Compaction
from tests.support.hostile_text import HOSTILE_BODIES, HOSTILE_TEXTS

# Fragments


def holed() -> MessageArchive:
    archive = MessageArchive()
    for first in (5, 10, 20, 25, 40):
        archive.add(first, steady(5, first))
    return archive


def test_a_fragment_has_everything_that_its_entry_says() -> None:
    archive = holed()
    (entry,) = archive.table.log_from_offset(STREAM.incarnation, Offset(21), 1).entries
    found = list_fragments(archive.table, STREAM, Offset(21), 1).rows[0]
    assert (found.first_offset, found.next_offset, found.gap_before) == (20, 25, 5)
    assert (found.first_time, found.last_time, found.epoch) == (20, 20, 1)
    assert (found.chunks, found.records, found.messages) == (1, 5, 5)
    assert (found.data_bytes, found.stored_bytes) == (entry.data_bytes, entry.object_bytes)
    assert (found.encoding, found.storage_class, found.key, found.generation) == ("identity", None, entry.key, 0)
    assert found.cost_usd == storage_usd(entry.object_bytes)
    assert not found.must_be_restored
    assert not found.is_erased


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_pages_of_fragments_have_each_once_both_ways(limit: int) -> None:
    archive = holed()
    archive.table.requests.clear()
    firsts: list[int] = []
    at: Offset | None = Offset(0)
    pages = 0
    while at is not None:
        page = list_fragments(archive.table, STREAM, at, limit)
        firsts += [row.first_offset for row in page.rows]
        at = page.next
        pages += 1
    assert firsts == [5, 10, 20, 25, 40]
    assert archive.table.requests == {"Query": pages}
    backwards: list[int] = []
    at = Offset(45)
    while at is not None:
        page = list_fragments(archive.table, STREAM, at, limit, before=True)
        backwards = [*(row.first_offset for row in page.rows), *backwards]
        assert page.next == at
        at = page.previous
    assert backwards == firsts


def test_fragments_of_a_million_are_one_query() -> None:
    table = MillionTable(MillionObjects())
    for before in (False, True):
        table.requests.clear()
        assert len(list_fragments(table, table.stream, Offset(123_456_789), 20, before=before).rows) == 20
        assert table.requests == {"Query": 1}


@pytest.mark.parametrize("limit", [0, 501])
def test_a_page_of_fragments_that_is_too_large_is_refused(limit: int) -> None:
    with pytest.raises(InvalidQueryError, match="limit"):
        list_fragments(holed().table, STREAM, Offset(0), limit)


def test_a_cold_fragment_is_told_to_need_a_restore() -> None:
    archive = holed()
    entry = archive.table.log_from_offset(STREAM.incarnation, Offset(0), 1).entries[0]
    assert fragment_row(replace(entry, storage_class=StorageClass.GLACIER)).must_be_restored
    assert not fragment_row(replace(entry, storage_class=StorageClass.GLACIER_IR)).must_be_restored


# Chunks


def chunks(archive: MessageArchive, at: int, *, before: bool = False) -> ChunkListing:
    return list_chunks(archive.table, archive.objects, archive.stream, Offset(at), before=before)


@pytest.mark.parametrize("seed", range(30))
def test_pages_of_chunks_have_each_once_with_the_header_that_is_stored(seed: int) -> None:
    archive = random_archive(random.Random(seed))
    if not archive.chunks:
        return
    rows: list[ChunkRow] = []
    gaps: list[tuple[int, int]] = []
    at: Offset | None = Offset(0)
    while at is not None:
        archive.objects.requests.clear()
        page = list_chunks(archive.table, archive.objects, archive.stream, at)
        rows += page.rows
        assert archive.objects.requests["GetObject"] == (1 if page.rows else 0) == page.cost.gets
        if page.gap is not None:
            gaps.append((page.gap.first_offset, page.gap.next_offset))
        at = page.next
    assert [(row.chunk_id, row.position) for row in rows] == [(c.header.chunk_id, c.position) for c in archive.chunks]
    assert gaps == holes(archive.chunks)
    for row, stored in zip(rows, archive.chunks, strict=True):
        header = stored.header
        assert (row.type, row.entries, row.records, row.timestamp) == (
            header.type,
            header.entries,
            header.records,
            header.timestamp,
        )
        assert (row.crc, row.epoch, row.total_bytes) == (header.crc, header.epoch, header.total_bytes)
    backwards: list[int] = []
    at = archive.chunks[-1].header.next_offset
    while at is not None:
        page = list_chunks(archive.table, archive.objects, archive.stream, at, before=True)
        found = [row.chunk_id for row in page.rows if row.chunk_id < at]
        backwards = [*found, *backwards]
        at = page.previous
    assert backwards == [stored.header.chunk_id for stored in archive.chunks]


def test_the_type_of_a_chunk_is_told_in_words() -> None:
    archive = MessageArchive(sparse_bytes=10_000)
    archive.add(0, [Spec(2, 1), Spec(1, 2, ChunkType.TRACKING_DELTA), Spec(1, 3, ChunkType.TRACKING_SNAPSHOT)])
    assert [row.type_name for row in chunks(archive, 0).rows] == ["user", "tracking delta", "tracking snapshot"]


def test_past_the_tail_there_are_no_chunks_and_the_way_back() -> None:
    archive = holed()
    found = chunks(archive, 1000)
    assert (found.rows, found.next, found.previous) == ((), None, 45)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_positions_of_a_compacted_fragment_are_those_of_its_identity_encoding(
    encoding: Encoding,
    monkeypatch: pytest.MonkeyPatch,
    small_transactions: None,
) -> None:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 300)
    archive = MessageArchive()
    for number in range(6):
        archive.add(number * 9, steady(3, number * 30, number * 30 + 10, number * 30 + 20))
    compaction = Compaction(archive)
    policy = CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, encoding)
    group = next(iter(plan_groups(compaction.log(), policy)))
    for _ in compaction.replace(group, compaction.store(group, encoding)):
        pass
    positions: list[int] = []
    at: Offset | None = Offset(0)
    while at is not None:
        page = chunks(archive, at)
        positions += [row.position for row in page.rows]
        at = page.next
    sizes = [stored.header.total_bytes for stored in archive.chunks]
    assert [b - a for a, b in pairwise(positions)] == sizes[:-1]
    assert positions[0] == 8


def test_chunks_of_a_million_fragments_are_one_query_and_one_get() -> None:
    objects = MillionObjects()
    table = MillionTable(objects)
    found = list_chunks(table, objects, table.stream, Offset(123_456_789))
    assert (table.requests, objects.requests) == ({"Query": 1}, {"GetObject": 1})
    assert found.rows[0].chunk_id <= 123_456_789 < found.rows[0].next_offset


# Entries


def packed() -> MessageArchive:
    archive = MessageArchive(packing=lambda chunk_id: Compression.GZIP if chunk_id else None)
    archive.add(0, steady(7, 1, 2))
    return archive


def test_entries_are_messages_and_sub_batches_with_what_they_take() -> None:
    archive = packed()
    archive.table.requests.clear()
    archive.objects.requests.clear()
    found = list_entries(archive.table, archive.objects, STREAM, Offset(9))
    assert (archive.table.requests, archive.objects.requests) == ({"Query": 1}, {"GetObject": 1})
    assert (found.chunk.chunk_id, found.total, found.problem) == (7, 4, None)
    rows = [(row.number, row.first_offset, row.records, row.compression) for row in found.rows]
    assert rows == [(0, 7, 1, None), (1, 8, 0, "gzip"), (2, 8, 3, "gzip"), (3, 11, 3, "gzip")]
    assert found.rows[0].stored_bytes == len(data_message(b"message 7"))
    members = [data_message(b"message %d" % offset) for offset in (8, 9, 10)]
    assert found.rows[2].uncompressed_bytes == sum(4 + len(one) for one in members)
    page = list_entries(archive.table, archive.objects, STREAM, Offset(9), first=2, limit=1)
    assert [row.number for row in page.rows] == [2]
    plain = list_entries(archive.table, archive.objects, STREAM, Offset(3))
    assert [row.first_offset for row in plain.rows] == list(range(7))


def test_entries_where_there_are_none_are_an_error_that_says_why() -> None:
    archive = holed()
    for at, error in ((0, NotFoundError), (15, GapError), (100, NotFoundError)):
        with pytest.raises(error):
            list_entries(archive.table, archive.objects, STREAM, Offset(at))
    other = StreamId("/", "orders", Incarnation("another"))
    with pytest.raises(StreamNotFoundError):
        list_entries(archive.table, archive.objects, other, Offset(5))


@pytest.mark.parametrize("page", [{"limit": 0}, {"limit": 1001}, {"first": -1}], ids=str)
def test_a_page_of_entries_that_cannot_be_is_refused(page: dict[str, int]) -> None:
    archive = holed()
    with pytest.raises(InvalidQueryError):
        list_entries(archive.table, archive.objects, STREAM, Offset(5), **page)


# Messages to save


def saved(raw: bytes, what: DownloadPart, stream: StreamId = STREAM) -> tuple[MessageDownload, bytes]:
    archive = MessageArchive(lambda _: raw, stream=stream)
    archive.add(0, steady(1, 1))
    archive.table.requests.clear()
    found = open_download(archive.table, archive.objects, stream, Offset(0), what)
    assert (archive.table.requests, archive.objects.requests["GetObject"]) == ({"Query": 1}, 1)
    out = io.BytesIO()
    for block in found.blocks:
        assert len(block) <= BLOCK_BYTES
        out.write(block)
    assert len(out.getvalue()) == found.size_bytes
    return found, out.getvalue()


@pytest.mark.parametrize("body", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
def test_a_body_is_saved_byte_for_byte_and_so_is_the_whole_message(body: bytes) -> None:
    raw = data_message(body)
    assert saved(raw, DownloadPart.BODY)[1] == body
    assert saved(raw, DownloadPart.RAW)[1] == raw


def test_a_large_body_comes_in_blocks() -> None:
    body = random.Random(1).randbytes(1_000_000)
    assert saved(data_message(body), DownloadPart.BODY)[1] == body


def test_of_a_message_without_data_the_whole_is_saved() -> None:
    for raw in (encode(value="text"), b"not AMQP", b"", encode(application_properties={"a": 1})):
        found, content = saved(raw, DownloadPart.BODY)
        assert content == raw
        assert found.file_name.endswith(".amqp")


def test_several_data_sections_are_saved_as_one_body() -> None:
    assert saved(data_message(b"one") + data_message(b"two"), DownloadPart.BODY)[1] == b"onetwo"


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_a_file_name_has_nothing_that_a_header_or_a_shell_minds(text: str) -> None:
    found, _ = saved(data_message(b"x"), DownloadPart.BODY, StreamId("/", text, STREAM.incarnation))
    assert found.file_name.isascii()
    assert set(found.file_name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
    assert len(found.file_name) < 110
    assert not found.file_name.startswith((".", "-"))


def test_what_is_not_there_or_damaged_is_not_saved() -> None:
    archive = holed()
    for at, error in ((0, NotFoundError), (15, GapError), (100, NotFoundError)):
        with pytest.raises(error):
            open_download(archive.table, archive.objects, STREAM, Offset(at))
    with pytest.raises(CorruptionError):
        saved(b"\x00\x53\x75\xb0\x00\x00\x00\xff", DownloadPart.BODY)
    assert saved(b"\x00\x53\x75\xb0\x00\x00\x00\xff", DownloadPart.RAW)[1]
