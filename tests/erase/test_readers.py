"""Everything that reads agrees that what was erased is gone, and that nothing else is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rstream import amqp_decoder

from coldstream.format.amqp.message import messages
from coldstream.format.chunk import Chunk, iter_chunks
from coldstream.format.entry import SUB_BATCH_HEADER, SubBatch
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.writer import make_chunk
from coldstream.lifecycle.sweep import sweep
from coldstream.manifest.entry import Encoding
from coldstream.manifest.spec import FIRST
from coldstream.read.reader import Reader
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.replay.forward import chunk_entries
from coldstream.rows.batches import batches
from coldstream.rows.schema import SCHEMA
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.object_values import BucketCapabilities
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs
from tests.erase.archived import MessageArchive, body_of, user_of
from tests.erase.samples import between
from tests.erase.stores import GRACE_MS, Erasing
from tests.support.archive import STREAM
from tests.support.compacting import compact_stream, options_of
from tests.support.http_archive import HttpObjects, http_archive

FIRST_ERASED, NEXT_KEPT = 10, 60
END = 24 * 4


def is_erased(offset: int) -> bool:
    return FIRST_ERASED <= offset < NEXT_KEPT


@pytest.fixture(scope="module")
def erasing() -> Erasing:
    """Four fragments of both encodings, of which some messages are erased, and the old objects deleted."""
    archive = MessageArchive(objects=HttpObjects())
    for number in range(4):
        archive.add(4, encoding=list(Encoding)[number % 2])
    found = Erasing(archive)
    found.erase(between(FIRST_ERASED, NEXT_KEPT))
    found.clock.at += GRACE_MS
    assert sweep(found.stores(), archive.stream.incarnation).objects == 3
    return found


def chunks(erasing: Erasing) -> Iterator[tuple[ScanSlice, Chunk]]:
    for step in plan_scan(erasing.archive.table, erasing.archive.stream, Offset(0)):
        assert isinstance(step, ScanSlice)
        for chunk in read_slice(erasing.archive.objects, step):
            yield step, chunk


def test_after_the_sweep_no_object_has_the_bytes(erasing: Erasing) -> None:
    for offset in range(END):
        # Those in compressed sub-batches are in no object as they are, erased or not; the other tests read them.
        assert not is_erased(offset) or not erasing.archive.holding(body_of(offset))
    assert erasing.archive.holding(body_of(0))


def test_a_scan_reads_the_others_as_they_were(erasing: Erasing) -> None:
    read = erasing.archive.read()
    assert read == {
        offset: ERASED_MESSAGE if is_erased(offset) else raw for offset, raw in erasing.archive.published.items()
    }


def test_a_consumer_of_the_archive_gets_empty_messages_at_the_same_offsets(erasing: Erasing) -> None:
    objects = erasing.archive.objects
    assert isinstance(objects, HttpObjects)
    with (
        http_archive(erasing.archive.table, objects) as archive,
        Reader(archive.url, STREAM.vhost, STREAM.name, FIRST) as reader,
    ):
        read = [(message.offset, message.body, message.properties is None) for message in reader.messages()]
    assert read == [
        (offset, b"" if is_erased(offset) else body_of(offset), is_erased(offset))
        for offset in sorted(erasing.archive.published)
    ]


def test_rows_have_an_empty_value_and_no_properties(erasing: Erasing) -> None:
    found = []
    for step, chunk in chunks(erasing):
        span = {"start": Offset(0), "end": step.end, "source": step.key}
        for batch in batches(iter([chunk]), "orders", SCHEMA.names, **span):  # type: ignore[arg-type]
            found += batch.to_pylist()
    assert [row["offset"] for row in found] == sorted(erasing.archive.published)
    for row in found:
        offset = row["offset"]
        assert row["value"] == (b"" if is_erased(offset) else body_of(offset))
        told = [value for name, value in row.items() if name not in {"offset", "value", "chunk_timestamp", "stream"}]
        assert (user_of(offset) in str(told)) is not is_erased(offset)


def test_a_replay_publishes_the_erased_message(erasing: Erasing) -> None:
    replayed: list[bytes] = []
    for step, chunk in chunks(erasing):
        for entry in chunk_entries(chunk, step.start, step.end, source=step.key):
            replayed += [
                message.raw for message in messages(chunk_with(entry.head + bytes(entry.data)), source="replay")
            ]
    assert replayed == [raw for _, raw in sorted(erasing.archive.read().items())]


def chunk_with(data: bytes) -> Chunk:
    """Make the chunk in which a broker stores one entry."""
    entry: bytes | SubBatch = data[4:]
    if data[0] & 0x80:
        kind, records, size_bytes, _ = SUB_BATCH_HEADER.unpack_from(data)
        entry = SubBatch(kind >> 4 & 7, records, size_bytes, memoryview(data)[SUB_BATCH_HEADER.size :], 0)
    _, chunk = make_chunk([entry], chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(1))
    return next(iter_chunks(chunk, source="replay"))


def test_the_decoder_of_another_client_reads_each_message(erasing: Erasing) -> None:
    for offset, raw in erasing.archive.read().items():
        decoded = amqp_decoder(raw)
        assert decoded.body == (b"" if is_erased(offset) else body_of(offset))
        assert (decoded.properties is None) is is_erased(offset)


def test_a_versioned_bucket_keeps_no_version_of_the_bytes() -> None:
    archive = MessageArchive(objects=MemoryObjects(versioned=True))
    archive.add(4)
    erasing = Erasing(archive, bucket=BucketCapabilities(versioned=True))
    erasing.erase(between(0, 24))
    assert any(body_of(3) in data for data in erasing.archive.every_version())
    erasing.clock.at += GRACE_MS
    sweep(erasing.stores(), archive.stream.incarnation)
    assert not any(b"secret" in data for data in erasing.archive.every_version())


def test_a_versioned_bucket_keeps_no_version_of_what_a_compaction_replaced_before() -> None:
    archive = MessageArchive(objects=MemoryObjects(versioned=True))
    archive.add(4)
    archive.add(4)
    compact_stream(archive.table, archive.objects, archive.stream, options_of())
    assert len(archive.log) == 1
    erasing = Erasing(archive, bucket=BucketCapabilities(versioned=True))
    erasing.erase(between(0, 48))
    erasing.clock.at += LONGEST_GRACE_MS + GRACE_MS
    sweep(erasing.stores(), archive.stream.incarnation)
    assert not any(b"secret" in data for data in erasing.archive.every_version())
