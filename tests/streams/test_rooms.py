"""Direct streams in the archive's other rooms: resolved, read, compacted, expired, held, scrubbed, rebuilt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest

from coldstream.errors import HeldError, NotClosedError, OffsetOutOfRangeError, ReservedNameError
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.retention import run_retention
from coldstream.lifecycle.sweep import sweep
from coldstream.lifecycle.truncation import truncate, up_to_offset, up_to_time
from coldstream.manifest.entry import Encoding, StorageClass
from coldstream.manifest.policy import Policy
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
from coldstream.manifest.stream import StreamId
from coldstream.read.aio import AsyncReader
from coldstream.read.reader import Reader
from coldstream.rebuild.run import Rebuilder
from coldstream.resolve.answer import Bounds, RangesQuery
from coldstream.resolve.resolver import Resolver
from coldstream.scrub.budget import Budget
from coldstream.scrub.damage import Damage
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.store.direct_names import find_name
from coldstream.store.keys import Keys
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import BlockingStreamClient, DirectArchive, OpenMode
from coldstream.streams.wal.memory_store import MemoryWalStore
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs, now_ms
from tests.manifest.shard_samples import AT, sample_map
from tests.support.compacting import compact_stream, options_of
from tests.support.direct_streams import (
    OPTIONS,
    PUBLISHER,
    append,
    bodies,
    direct_head,
    lifecycle_stores,
    opened,
    scanned,
)
from tests.support.http_archive import HttpArchive, HttpObjects, http_archive
from tests.support.written_maps import map_writer

DAY_MS = 24 * 3600 * 1000
published = pytest.mark.parametrize("is_published", [False, True], ids=["plain", "published"])


@pytest.fixture
def objects() -> HttpObjects:
    return HttpObjects()


@pytest.fixture
def archive(objects: HttpObjects) -> DirectArchive:
    return DirectArchive(MemoryTable(), objects, Keys())


@pytest.fixture
def served(archive: DirectArchive, objects: HttpObjects) -> Iterator[HttpArchive]:
    with http_archive(archive.table, objects) as http:
        yield http


def stream_of(archive: DirectArchive) -> StreamId:
    return direct_head(archive).stream


def rebuilt(archive: DirectArchive) -> DirectArchive:
    """Lose the table, and make it anew from the bucket."""
    table = MemoryTable()
    rebuilder = Rebuilder(table, archive.objects, archive.keys, now_ms, DAY_MS)
    for stream in list(archive.table.streams(None, 100).streams):
        rebuilder.stream(stream.incarnation)
    return DirectArchive(table, archive.objects, archive.keys)


def findings(archive: DirectArchive) -> list[Damage]:
    scrubber = Scrubber(archive.table, archive.objects, archive.keys, now_ms, pause=lambda _: None)
    report = scrubber.run(None, ScrubOptions(resume=False, deep=True), Budget())
    return [finding.damage for finding in report.findings]


# The resolver and its readers.


@published
def test_the_resolver_finds_offsets_and_timestamps(archive: DirectArchive, *, is_published: bool) -> None:
    append(archive, 3, is_published=is_published)
    head = direct_head(archive)
    resolver = Resolver(archive.table, archive.objects, url_expiry_s=60)
    log = archive.table.log_from_offset(head.stream.incarnation, Offset(0), 10).entries
    assert len(log) == 3

    def first_of(spec: object) -> int | None:
        answer = resolver.ranges(RangesQuery("/", "orders", spec, None, Bounds()))  # type: ignore[arg-type]
        return answer.ranges[0].first_offset if answer.ranges else None

    assert first_of(FIRST) == 0
    assert first_of(AtOffset(Offset(log[1].first_offset))) == log[1].first_offset
    assert first_of(AtTimestamp(log[0].first_timestamp)) == 0
    assert first_of(AtTimestamp(TimestampMs(head.greatest_timestamp or 0))) is not None
    assert first_of(NEXT) is None
    assert first_of(LAST) is not None


@published
def test_readers_have_every_message_once_while_the_stream_is_appended_to(
    archive: DirectArchive, served: HttpArchive, *, is_published: bool
) -> None:
    appended = append(archive, 2, is_published=is_published)
    with opened(archive) as stream:
        first = stream.publisher_id(PUBLISHER) or len(appended)
        with Reader(served.url, "/", "orders") as reader:
            reading = reader.messages()
            found = [message.body for message in islice(reading, 5)]
            stream.append(bodies(first, 3))
            stream.flush()
            stream.append(bodies(first + 3, 3))  # in the log alone: not in the archive yet
            found += [message.body for message in reading]
    assert found[: len(appended)] == appended
    assert found[len(appended) :] in ([], bodies(first, 3))
    with Reader(served.url, "/", "orders", AtOffset(Offset(4))) as reader:
        assert [message.body for message in reader.messages()] == [*appended, *bodies(first, 6)][4:]

    async def read() -> list[bytes | None]:
        async with AsyncReader(served.url, "/", "orders") as reader:
            return [message.body async for message in reader.messages()]

    assert asyncio.run(read()) == [*appended, *bodies(first, 6)]


# Compaction.


@published
@pytest.mark.parametrize("encoding", list(Encoding))
def test_what_was_compacted_is_the_same_and_the_publishers_are_known(
    archive: DirectArchive, encoding: Encoding, *, is_published: bool
) -> None:
    appended = append(archive, 5, is_published=is_published)
    stream = stream_of(archive)
    later = TimestampMs(now_ms() + DAY_MS)
    compact_stream(archive.table, archive.objects, stream, options_of(encoding), now=later)
    assert direct_head(archive).fragments == 1
    assert scanned(archive, stream) == appended
    with opened(archive) as handle:
        assert b"".join(m.body for b in handle.fetch(Offset(0)) for m in b.messages()) == b"".join(appended)  # type: ignore[misc]
        if is_published:
            assert handle.publisher_id(PUBLISHER) == len(appended)
            assert handle.append([b"again"], publisher=PUBLISHER, publishing_id=len(appended)) is None
    more = append(archive, 1, is_published=is_published)
    assert scanned(archive, stream) == appended + more


def test_a_stream_is_compacted_while_it_is_open(archive: DirectArchive) -> None:
    with opened(archive) as stream:
        for number in range(0, 15, 3):
            stream.append(bodies(number, 3))
            stream.flush()
        later = TimestampMs(now_ms() + DAY_MS)
        compact_stream(archive.table, archive.objects, stream_of(archive), options_of(), now=later)
        stream.append(bodies(15, 3))
        stream.flush()
        found = [m.body for b in stream.fetch(Offset(0)) for m in b.messages()]
    assert found == scanned(archive, stream_of(archive)) == bodies(0, 18)


# Retention, holds, storage classes.


def expire(archive: DirectArchive, **limits: int | StorageClass) -> None:
    stores = lifecycle_stores(archive)
    archive.table.put_policy(Policy("all", "*/*", **limits))  # type: ignore[arg-type]
    (report,) = run_retention(stores, [stream_of(archive)], dry_run=False)
    assert report.error is None
    sweep(stores, stream_of(archive).incarnation)


def test_retention_empties_a_stream_that_goes_on_where_it_was(archive: DirectArchive) -> None:
    append(archive, 3)
    expire(archive, max_bytes=1)
    assert direct_head(archive).fragments == 0
    with opened(archive) as stream:
        assert (stream.start, stream.tail) == (36, 36)
        with pytest.raises(OffsetOutOfRangeError):
            stream.fetch(Offset(0))
        assert stream.append([b"next"]) == 36


def test_an_open_stream_learns_that_its_beginning_was_removed_as_it_is_read(archive: DirectArchive) -> None:
    append(archive, 3)
    with opened(archive) as stream:
        stores = lifecycle_stores(archive)
        truncate(stores, stream_of(archive).incarnation, up_to_offset(Offset(13)), why="", by="me")
        with pytest.raises(OffsetOutOfRangeError, match="offset 3 is not within 12 to 36"):
            stream.fetch(Offset(3))
        assert stream.start == 12
        assert stream.fetch(Offset(12))[0].base_offset == 12


@pytest.mark.parametrize("by", ["policy", "truncation", "time", "trim"])
def test_what_the_publishers_appended_last_outlives_everything_else(archive: DirectArchive, by: str) -> None:
    appended = append(archive, 3, is_published=True)
    stream = stream_of(archive)
    if by == "policy":
        expire(archive, max_bytes=1)
    elif by == "trim":
        with opened(archive) as handle:
            handle.trim(handle.confirmed)
    else:
        choice = up_to_offset(Offset(1 << 40)) if by == "truncation" else up_to_time(TimestampMs(MAX_TIMESTAMP_MS))
        truncate(lifecycle_stores(archive), stream.incarnation, choice, why="", by="me")
    assert direct_head(archive).fragments == 1
    with opened(archive) as handle:
        assert handle.publisher_id(PUBLISHER) == len(appended)
        assert handle.append(bodies(len(appended) - 3, 3), publisher=PUBLISHER, publishing_id=len(appended)) is None


@published
def test_a_stream_that_is_archived_in_a_cold_class_can_be_opened(
    archive: DirectArchive, monkeypatch: pytest.MonkeyPatch, *, is_published: bool
) -> None:
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 0)
    append(archive, 3, is_published=is_published)
    archive.objects.clock = lambda: TimestampMs(now_ms() + DAY_MS)  # type: ignore[attr-defined,misc]
    stores = lifecycle_stores(archive)
    archive.table.put_policy(Policy("cold", "*/*", storage_class=StorageClass.DEEP_ARCHIVE, storage_class_age_ms=0))
    (report,) = run_retention(stores, [stream_of(archive)], dry_run=False)
    assert (report.error, report.moves.objects) == (None, 2 if is_published else 3)
    tail = direct_head(archive).next_offset
    more = append(archive, 1, is_published=is_published)
    assert direct_head(archive).fragments == 4
    assert scanned(archive, stream_of(archive), tail) == more


def test_a_hold_keeps_what_is_trimmed_and_the_stream_itself(archive: DirectArchive) -> None:
    append(archive, 3)
    stores, incarnation = lifecycle_stores(archive), stream_of(archive).incarnation
    hold = put_hold(stores, incarnation, first_offset=Offset(0), next_offset=Offset(12), reason="a lawsuit", by="me")
    with opened(archive) as stream:
        with pytest.raises(HeldError):
            stream.trim(Offset(30))
        assert stream.start == 30
        with pytest.raises(HeldError):
            stream.destroy()
    assert len(scanned(archive, stream_of(archive))) == 36
    with opened(archive) as stream:
        assert stream.start == 30
        release_hold(stores, incarnation, hold.id, by="me")
        stream.destroy()
    assert find_name(archive.table, "/", "orders") is None


def test_a_deleted_stream_comes_back_as_it_was_and_its_open_handle_appends_nothing_meanwhile(
    archive: DirectArchive,
) -> None:
    appended = append(archive, 1)
    incarnation = stream_of(archive).incarnation
    stores = lifecycle_stores(archive)
    delete_stream(stores, incarnation, grace_ms=DAY_MS, by="me")
    with BlockingStreamClient(archive, OPTIONS) as client:
        client.create("orders")
        assert client.open_stream("orders").tail == 0
        client.open_stream("orders").destroy()
    undelete_stream(stores, incarnation, by="me")
    more = append(archive, 1)
    assert scanned(archive, stream_of(archive)) == appended + more


# Scrub and rebuild.


@published
def test_a_scrub_finds_nothing_wrong_with_a_stream_whether_it_is_open_closed_or_sealed(
    archive: DirectArchive, *, is_published: bool
) -> None:
    append(archive, 2, is_published=is_published)
    assert findings(archive) == []
    with opened(archive) as stream:
        stream.append(bodies(100, 3))
        assert findings(archive) == []
        stream.trim(Offset(3))
        assert findings(archive) == []
        stream.seal()
    assert findings(archive) == []


@published
def test_a_table_that_was_lost_while_the_stream_was_open_gives_back_all_that_was_acknowledged(
    archive: DirectArchive, *, is_published: bool
) -> None:
    appended = append(archive, 2, is_published=is_published)
    dead = BlockingStreamClient(archive, OPTIONS)
    stream = dead.open_stream("orders")
    first = stream.publisher_id(PUBLISHER) or len(appended)
    stream.append(bodies(first, 3), **({"publisher": PUBLISHER, "publishing_id": first + 3} if is_published else {}))
    epoch = stream.epoch
    again = rebuilt(archive)
    with opened(again) as handle:
        assert handle.epoch > epoch
        if is_published:
            assert handle.publisher_id(PUBLISHER) == first + 3
    assert scanned(again, stream_of(again)) == [*appended, *bodies(first, 3)]
    assert findings(again) == []
    with pytest.raises(Exception, match="orders"):
        stream.append([b"by the one that was open before"])
    assert scanned(again, stream_of(again)) == [*appended, *bodies(first, 3)]


def test_a_log_that_is_not_in_the_bucket_stands_in_the_way_after_a_rebuild_too(archive: DirectArchive) -> None:
    with BlockingStreamClient(archive, OPTIONS, wal=MemoryWalStore()) as client:
        client.create("orders")
        client.open_stream("orders").append([b"in memory alone"])
        again = rebuilt(archive)
        with BlockingStreamClient(again, OPTIONS) as other:
            with pytest.raises(NotClosedError):
                other.open_stream("orders")
            assert other.open_stream("orders", mode=OpenMode.SNAPSHOT).confirmed == 0
            assert other.open_stream("orders", force=True).tail == 0


# Sharded streams.


def test_no_direct_stream_takes_the_name_of_a_sharded_stream_or_of_a_partition(archive: DirectArchive) -> None:
    map_writer(archive.table).write(sample_map(), ShardEventKind.DECLARE, AT)
    with BlockingStreamClient(archive, OPTIONS) as client:
        for name in ("orders", "orders-1"):
            with pytest.raises(ReservedNameError):
                client.create(name)
        client.create("others")
        assert [info.name for info in client.list()] == ["others"]
