"""Reading over real HTTP: exact, in order, in bounded memory, and whatever goes wrong on the way."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from urllib.parse import parse_qs, urlsplit

import pytest

from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    BadSequenceError,
    ColdstreamError,
    CorruptionError,
    GapError,
    InvalidQueryError,
    NotRestoredError,
    ObjectNotFoundError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.format.chunk import ChunkType
from coldstream.manifest.entry import Encoding, Gap, StorageClass
from coldstream.manifest.groups import Group
from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.read import http
from coldstream.read.appetite import Appetite
from coldstream.read.client import ResolverClient
from coldstream.read.fetch import RangeFetcher
from coldstream.read.http import ClosedError
from coldstream.read.reader import Reader
from coldstream.resolve.answer import Range
from coldstream.resolve.attach import REMOVED
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.support.archive import STREAM, ChunkArchive, Spec, steady
from tests.support.compaction import Compaction
from tests.support.http_archive import Fault, Get, HttpArchive, HttpObjects, http_archive
from tests.support.removing import move_to_class, remove_prefix


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(http, "MAX_DELAY_S", 0.02)


@dataclass
class Served:
    """A stream of fragments of ten chunks of five messages, a second between two chunks, and where it is served."""

    archive: ChunkArchive
    http: HttpArchive

    def reader(self, start: OffsetSpec = FIRST, **settings: object) -> Reader:
        return Reader(self.http.url, STREAM.vhost, STREAM.name, start, **settings)

    @property
    def faults(self) -> None:
        raise AttributeError

    @faults.setter
    def faults(self, faults: Callable[[Get], Fault | None]) -> None:
        self.http.objects.faults = faults


FRAGMENTS = 6
RECORDS = 50
TAIL = FRAGMENTS * RECORDS


@contextmanager
def serve(archive: ChunkArchive, url_expiry_s: int = 3600) -> Iterator[Served]:
    with http_archive(archive.table, archive.objects, url_expiry_s=url_expiry_s) as where:
        yield Served(archive, where)


def fragments(*numbers: int, message_bytes: int = 100) -> ChunkArchive:
    archive = ChunkArchive(objects=HttpObjects(), message_bytes=message_bytes, sparse_bytes=1500)
    for number in numbers:
        archive.add(number * RECORDS, steady(5, *(1000 * chunk for chunk in range(number * 10, number * 10 + 10))))
    return archive


@pytest.fixture
def served() -> Iterator[Served]:
    with serve(fragments(*range(FRAGMENTS))) as where:
        yield where


def offsets(reader: Reader) -> list[int]:
    """Read to the end; return the offset of each message, having checked that the message is the one of that offset."""
    found = []
    for message in reader.messages():
        assert int.from_bytes(message.raw[:8]) == message.offset
        assert reader.position == message.offset + 1
        found.append(message.offset)
    return found


@pytest.mark.parametrize("range_bytes", [1, 1600, 3000, 1 << 20])
@pytest.mark.parametrize("prefetch_bytes", [1, 5000, 1 << 20])
def test_everything_is_read_once_and_in_order(served: Served, range_bytes: int, prefetch_bytes: int) -> None:
    reader = served.reader(range_bytes=range_bytes, prefetch_bytes=prefetch_bytes)
    assert offsets(reader) == list(range(TAIL))
    assert reader.tail == reader.position == TAIL
    assert reader.stream == STREAM


@pytest.mark.parametrize("offset", [0, 1, 4, 5, 49, 50, 51, 123, 249, 250, TAIL - 1])
def test_nothing_before_the_offset_asked_for_is_given(served: Served, offset: int) -> None:
    assert offsets(served.reader(AtOffset(Offset(offset)))) == list(range(offset, TAIL))


@pytest.mark.parametrize("chunk", [0, 1, 9, 10, 11, 37, 59])
@pytest.mark.parametrize("early_ms", [0, 1, 999])
def test_a_timestamp_begins_at_the_first_chunk_at_or_after_it(served: Served, chunk: int, early_ms: int) -> None:
    at = AtTimestamp(TimestampMs(1000 * chunk - early_ms))
    assert offsets(served.reader(at)) == list(range(5 * chunk, TAIL))


def test_first_last_and_next_attach_as_at_the_broker(served: Served) -> None:
    assert offsets(served.reader(FIRST)) == list(range(TAIL))
    assert offsets(served.reader(LAST)) == list(range(TAIL - 5, TAIL))
    assert offsets(served.reader(NEXT)) == []


@pytest.mark.parametrize("start", [AtOffset(Offset(TAIL)), AtOffset(Offset(10_000)), AtTimestamp(TimestampMs(60_000))])
def test_reading_past_the_end_gives_only_the_tail(served: Served, start: OffsetSpec) -> None:
    reader = served.reader(start)
    assert offsets(reader) == []
    assert reader.tail == TAIL
    assert reader.position is None


def test_chunks_of_every_type_are_given_and_messages_of_user_chunks_alone() -> None:
    archive = ChunkArchive(objects=HttpObjects())
    archive.add(0, [Spec(2, 1), Spec(1, 2, ChunkType.TRACKING_DELTA), Spec(3, 3)])
    with serve(archive) as served:
        assert [chunk.header.chunk_id for chunk in served.reader().chunks()] == [0, 2, 3]
        reader = served.reader()
        assert offsets(reader) == [0, 1, 3, 4, 5]
        assert reader.position == 6


def test_the_chunk_that_holds_the_offset_comes_whole(served: Served) -> None:
    reader = served.reader(AtOffset(Offset(57)))
    assert next(reader.chunks()).header.chunk_id == 55
    assert reader.position == 60
    reader.close()


def test_a_batch_is_a_range_and_position_its_end(served: Served) -> None:
    reader = served.reader()
    for batch in reader.batches():
        assert reader.position == batch.chunks[-1].header.next_offset == batch.range.next_offset
    assert reader.position == TAIL


def test_overlapping_entries_are_read_once() -> None:
    archive = fragments(0, 1)
    merged = archive.put(0, steady(5, *range(20)), generation=1)
    archive.table._partitions[STREAM.incarnation].entries[merged.next_offset] = merged
    with serve(archive) as served:
        assert offsets(served.reader()) == list(range(100))


@pytest.fixture(params=["identity", "zstd-seekable", "interrupted"])
def compacted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 1500)
    archive = fragments(*range(8))
    compaction = Compaction(archive)
    group = Group(compaction.log()[1:7])
    encoding = Encoding.IDENTITY if request.param == "identity" else Encoding.ZSTD_SEEKABLE
    steps = compaction.replace(group, compaction.store(group, encoding))
    for _ in islice(steps, 1 if request.param == "interrupted" else None):
        pass
    with serve(archive) as where:
        yield where


@pytest.mark.parametrize("range_bytes", [1, 1600, 1 << 20])
def test_compacted_messages_are_read_once_and_in_order(compacted: Served, range_bytes: int) -> None:
    assert offsets(compacted.reader(range_bytes=range_bytes)) == list(range(8 * RECORDS))
    for offset in (0, 49, 50, 52, 99, 100, 149, 150, 222, 349, 350, 399):
        reader = compacted.reader(AtOffset(Offset(offset)), range_bytes=range_bytes)
        assert offsets(reader) == list(range(offset, 8 * RECORDS))
    for chunk in (0, 9, 10, 11, 20, 33, 69, 70, 79):
        reader = compacted.reader(AtTimestamp(TimestampMs(1000 * chunk)), range_bytes=range_bytes)
        assert offsets(reader) == list(range(5 * chunk, 8 * RECORDS))


@pytest.mark.parametrize("range_bytes", [1, 1 << 20])
def test_last_begins_at_the_last_user_chunk_also_within_a_frame(
    monkeypatch: pytest.MonkeyPatch, range_bytes: int
) -> None:
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 1500)
    archive = ChunkArchive(objects=HttpObjects(), message_bytes=100, sparse_bytes=1500)
    archive.add(0, [*steady(5, *range(11)), *(Spec(1, 20, ChunkType.TRACKING_DELTA) for _ in range(40))])
    compaction = Compaction(archive)
    group = Group(compaction.log())
    list(compaction.replace(group, compaction.store(group, Encoding.ZSTD_SEEKABLE)))
    with serve(archive) as served:
        assert offsets(served.reader(LAST, range_bytes=range_bytes)) == list(range(50, 55))


def test_a_frame_that_does_not_decompress_is_raised_with_key_and_position() -> None:
    archive = fragments(0, 1)
    compaction = Compaction(archive)
    group = Group(compaction.log())
    merged = compaction.store(group, Encoding.ZSTD_SEEKABLE)
    list(compaction.replace(group, merged))
    assert merged.frames is not None
    with serve(archive) as served:
        served.faults = lambda _: Fault(flip_at=100)
        with pytest.raises(CorruptionError, match="cannot be decompressed") as caught:
            offsets(served.reader())
    assert (caught.value.source, caught.value.position) == (merged.key, merged.frames.positions[0])


def test_a_gap_is_raised_after_everything_before_it() -> None:
    with serve(fragments(0, 1, 3)) as served:
        found = []
        reader = served.reader()
        with pytest.raises(GapError, match="offsets 100 to 149"):
            found.extend(message.offset for message in reader.messages())
        assert found == list(range(100))
        assert reader.position == 100


@pytest.mark.parametrize(
    ("start", "first"), [(FIRST, 0), (AtOffset(Offset(120)), 150), (AtTimestamp(TimestampMs(29_000)), 150)]
)
def test_a_gap_is_skipped_and_listed_if_asked_for(start: OffsetSpec, first: int) -> None:
    with serve(fragments(0, 1, 3, 5)) as served:
        reader = served.reader(start, on_gap="skip")
        expected = [*range(first, 100), *range(150, 200), *range(250, 300)]
        assert offsets(reader) == expected
        assert reader.gaps == [Gap(Offset(100), Offset(150)), Gap(Offset(200), Offset(250))]
        assert reader.tail == 300


def test_a_missing_stream_and_a_meaningless_query_are_different_errors(served: Served) -> None:
    with pytest.raises(StreamNotFoundError):
        next(Reader(served.http.url, "/", "payments").messages())
    with pytest.raises(InvalidQueryError):
        served.reader(range_bytes=0)


def test_every_page_is_of_the_incarnation_that_the_first_was(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.read.reader.PAGE_RANGES", 5)
    assert offsets(served.reader(range_bytes=1)) == list(range(TAIL))
    assert len(served.http.asked) == 5  # of 4, then 5 ranges
    assert "incarnation" not in served.http.asked[0]
    assert all(f"incarnation={STREAM.incarnation}" in asked for asked in served.http.asked[1:])


def max_ranges(served: Served) -> list[int]:
    return [int(parse_qs(urlsplit(asked).query)["max_ranges"][0]) for asked in served.http.asked]


@pytest.mark.parametrize("start", [FIRST, AtOffset(Offset(120)), LAST])
def test_one_message_costs_one_small_page(served: Served, start: OffsetSpec) -> None:
    with served.reader(start, range_bytes=1) as reader:
        next(reader.messages())
    assert max_ranges(served) == [4]
    assert isinstance(served.archive.objects, HttpObjects)
    assert served.archive.objects.signed <= 4
    assert served.archive.table.requests["Query"] == 2  # the name's, and that of the log


def test_the_next_page_is_asked_for_when_one_range_of_this_one_was_read_and_is_twice_as_large(served: Served) -> None:
    with served.reader(range_bytes=1) as reader:
        batches = reader.batches()
        sizes = []
        for _ in range(24):
            next(batches)
            sizes.append(len(served.http.asked))
    # A page may be asked for by another thread, so a look may come a moment too early.
    assert max_ranges(served) == [4, 8, 16]
    assert sizes[0] == 1
    assert max(sizes[:5]) <= 2


def test_pages_grow_up_to_a_bound() -> None:
    with serve(fragments(*range(50))) as served:
        assert offsets(served.reader(range_bytes=1)) == list(range(50 * RECORDS))
        assert max_ranges(served) == [4, 8, 16, 32, 64, 64, 64][: len(served.http.asked)]
        assert len(served.http.asked) > 5


APPETITES = [
    (AtOffset(Offset(10)), Appetite(messages=60), 70),
    (AtOffset(Offset(10)), Appetite(offset=Offset(100)), 100),
    (FIRST, Appetite(messages=100), 100),
    (FIRST, Appetite(timestamp=TimestampMs(15_000)), 75),
    (AtTimestamp(TimestampMs(5000)), Appetite(messages=20), 45),
    (FIRST, Appetite(messages=1000, offset=Offset(20)), 20),
]


@pytest.mark.parametrize(("start", "appetite", "end"), APPETITES)
def test_nothing_past_an_appetite_is_fetched_or_asked_for_ahead(
    start: OffsetSpec, appetite: Appetite, end: int
) -> None:
    with serve(fragments(*range(30))) as served:
        with served.reader(start, appetite=appetite) as reader:
            for message in reader.messages():
                if message.offset == end - 1:
                    break
            # What is under way, a thread may have begun a moment ago.
            time.sleep(0.1)
        assert isinstance(served.archive.objects, HttpObjects)
        assert len(served.http.objects.gets) == -(-end // RECORDS)
        assert max_ranges(served) == [4]


@pytest.mark.parametrize("settings", [{}, {"range_bytes": 1}, {"range_bytes": 3000, "prefetch_bytes": 1}])
@pytest.mark.parametrize(("start", "appetite", "end"), APPETITES)
def test_an_appetite_bounds_nothing(
    start: OffsetSpec, appetite: Appetite, end: int, settings: dict[str, int], served: Served
) -> None:
    expected = offsets(served.reader(start, **settings))
    assert expected[-1] == TAIL - 1 >= end
    assert offsets(served.reader(start, appetite=appetite, **settings)) == expected


def test_an_appetite_does_not_hide_a_gap() -> None:
    with serve(fragments(0, 1, 3)) as served:
        reader = served.reader(on_gap="skip", appetite=Appetite(messages=10))
        assert offsets(reader) == [*range(2 * RECORDS), *range(3 * RECORDS, 4 * RECORDS)]
        assert reader.gaps == [Gap(Offset(2 * RECORDS), Offset(3 * RECORDS))]


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500), Fault(status=503), Fault(status=429), Fault(keep_bytes=0), Fault(keep_bytes=700)],
    ids=str,
)
def test_transient_failures_are_retried(served: Served, fault: Fault) -> None:
    failed: dict[tuple[str, int], int] = {}

    def faults(get: Get) -> Fault | None:
        failed[get.key, get.first_byte] = failed.get((get.key, get.first_byte), 0) + 1
        return fault if failed[get.key, get.first_byte] <= 2 else None

    served.faults = faults
    assert offsets(served.reader(range_bytes=2000)) == list(range(TAIL))


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(keep_bytes=10)], ids=str)
def test_lasting_failures_are_unavailable_after_a_bounded_number_of_attempts(served: Served, fault: Fault) -> None:
    served.faults = lambda get: fault if get.key.endswith("0100.fragment") else None
    found = []
    with pytest.raises(UnavailableError, match=r"0100\.fragment"):
        found.extend(message.offset for message in served.reader(connections=1).messages())
    assert found == list(range(100))
    assert sum(get.key.endswith("0100.fragment") for get in served.http.objects.gets) == http.ATTEMPTS


def test_a_silent_server_is_given_up_and_tried_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"read_timeout_s": 0.2, "attempts": 3, "trust": None}
    monkeypatch.setattr(http.HttpClient.__init__, "__kwdefaults__", limits)
    served.faults = lambda get: Fault(stall_s=5) if get.number == 2 else None
    assert offsets(served.reader()) == list(range(TAIL))


def test_one_flipped_bit_is_found_and_raised_with_key_and_position(served: Served) -> None:
    served.faults = lambda get: Fault(flip_at=600) if get.key.endswith("0150.fragment") else None
    found = []
    with pytest.raises(BadCrcError) as raised:
        found.extend(message.offset for message in served.reader().messages())
    assert found == list(range(150))
    assert raised.value.source.endswith("0150.fragment")
    assert raised.value.position == served.archive.chunks[31].position


def test_another_objects_chunks_in_the_place_of_a_range_are_refused(served: Served) -> None:
    keys = sorted(served.archive.objects.objects)
    served.archive.objects.objects[keys[2]] = served.archive.objects.objects[keys[3]]
    with pytest.raises(BadSequenceError):
        offsets(served.reader())


def test_an_answer_that_is_not_the_range_is_refused_without_reading_it(served: Served) -> None:
    served.faults = lambda _: Fault(status=200)
    with pytest.raises(ColdstreamError, match="answered 200"):
        offsets(served.reader())


@pytest.mark.parametrize(
    ("length", "why"),
    [
        ("Content-Length: -1", "not with the 10 bytes"),
        ("Content-Length: ten", "not with the 10 bytes"),
        ("Content-Length: 11", "not with the 10 bytes"),
        ("Transfer-Encoding: chunked", "not with the 10 bytes"),
        ("Content-Length: 10\r\nContent-Length: 10", "chunk header is cut short"),
    ],
)
def test_a_length_that_makes_no_sense_is_refused_without_reading_on(length: str, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(f"HTTP/1.1 206 Partial Content\r\n{length}\r\n\r\n0123456789".encode())

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/key"
        at = TimestampMs(0)
        part = Range("bucket", "key", ByteRange(8, 18), Offset(0), Offset(5), at, at, Encoding.IDENTITY, 10, 0, url, at)
        fetcher = RangeFetcher(1)
        with pytest.raises(ColdstreamError, match=why):
            fetcher.fetch(part, None)
        fetcher.close()


def test_urls_that_expire_are_replaced_and_nothing_is_lost_or_given_twice() -> None:
    archive = fragments(*range(FRAGMENTS))
    with serve(archive, url_expiry_s=1) as served:
        reader = served.reader(range_bytes=2000, prefetch_bytes=1, connections=1)
        found = []
        for message in reader.messages():
            found.append(message.offset)
            if message.offset in {60, 160}:
                time.sleep(1.1)
        assert found == list(range(TAIL))
        assert len(served.http.asked) >= 3


def test_urls_about_to_expire_are_not_begun_with(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = served.reader(prefetch_bytes=1, connections=1)
    chunks = reader.batches()
    next(chunks)
    now = time.monotonic()
    monkeypatch.setattr("coldstream.read.fetch.time.monotonic", lambda: now + 3600)
    monkeypatch.setattr("coldstream.read.prefetch.time.monotonic", lambda: now + 3600)
    assert sum(len(batch.chunks) for batch in chunks) == FRAGMENTS * 10 - 10
    assert len(served.http.asked) == 3  # the page that was asked for ahead is of no use
    assert len(served.http.objects.gets) == FRAGMENTS


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_url_whose_signer_has_lost_its_session_is_replaced(served: Served, status: int) -> None:
    # S3 answers 400, ExpiredToken, where the URL itself still holds.
    served.faults = lambda get: Fault(status=status) if get.number == 2 else None
    assert offsets(served.reader(connections=1, prefetch_bytes=1)) == list(range(TAIL))
    assert sum("&offset=100&" in asked for asked in served.http.asked) == 1


@pytest.mark.parametrize("start", [AtOffset(Offset(57)), AtTimestamp(TimestampMs(11_500)), LAST], ids=str)
def test_a_refusal_before_the_first_range_resolves_the_same_place_again(served: Served, start: OffsetSpec) -> None:
    expected = offsets(served.reader(start))
    already = len(served.http.objects.gets)
    served.faults = lambda get: Fault(status=403) if get.number < already + 2 else None
    assert offsets(served.reader(start, connections=1, prefetch_bytes=1)) == expected


def test_urls_that_are_always_refused_end_in_access_denied(served: Served) -> None:
    served.faults = lambda get: Fault(status=403) if get.key.endswith("0050.fragment") else None
    found = []
    with pytest.raises(AccessDeniedError):
        found.extend(message.offset for message in served.reader(connections=1).messages())
    assert found == list(range(50))
    assert len(served.http.asked) <= 5


def test_an_object_that_is_gone_is_named(served: Served) -> None:
    key = sorted(served.archive.objects.objects)[3]
    del served.archive.objects.objects[key]
    with pytest.raises(ObjectNotFoundError) as raised:
        offsets(served.reader())
    assert raised.value.key == key


def test_no_more_than_prefetch_bytes_are_fetched_ahead_of_a_slow_consumer() -> None:
    archive = fragments(*range(20))
    with serve(archive) as served:
        size = len(archive.chunks[0].data) * 10
        reader = served.reader(prefetch_bytes=3 * size)
        batches = reader.batches()
        for taken in range(1, 8):
            next(batches)
            time.sleep(0.05)
            assert len(served.http.objects.gets) <= taken + 3
        reader.close()


SOON_S = 10
"""Much less than a server of these tests hangs, and enough for a machine that others keep busy."""


def fetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("coldstream-fetch")]


def gone(threads: list[threading.Thread]) -> bool:
    deadline = time.monotonic() + SOON_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("leave", ["break", "close", "with", "error"])
def test_leaving_half_way_ends_the_threads_at_once_even_where_a_server_hangs(served: Served, leave: str) -> None:
    served.faults = lambda get: None if get.key.endswith("/00000000000000000000.fragment") else Fault(stall_s=30)
    before = fetch_threads()
    reader = served.reader()
    messages = reader.messages()
    assert next(messages).offset == 0
    threads = [thread for thread in fetch_threads() if thread not in before]
    assert len(threads) >= 3  # of four ranges, the first two may have had one
    for _ in range(300):
        if len(served.http.objects.gets) < 5:
            time.sleep(0.01)
    match leave:
        case "break":
            del messages
        case "close":
            reader.close()
        case "with":
            with reader:
                pass
        case "error":
            with pytest.raises(KeyboardInterrupt):
                messages.throw(KeyboardInterrupt())
    assert gone(threads)


def test_an_interrupt_while_waiting_ends_the_threads(served: Served) -> None:
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))

    def faults(get: Get) -> Fault:
        # Not before the reader waits: on a busy machine it may still be starting its threads after any time.
        if get.number == 0:
            interrupt.start()
        return Fault(stall_s=30)

    served.faults = faults
    before = fetch_threads()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(served.reader().messages())
    assert time.monotonic() - started < SOON_S
    assert gone([thread for thread in fetch_threads() if thread not in before])


def test_reading_on_after_close_is_an_error_and_not_an_end(served: Served) -> None:
    reader = served.reader(prefetch_bytes=1)
    batches = reader.batches()
    next(batches)
    reader.close()
    with pytest.raises(ClosedError):
        next(batches)
    assert reader.tail is None


def test_a_reader_reads_once(served: Served) -> None:
    reader = served.reader()
    assert sum(1 for _ in reader.chunks()) == 60
    with pytest.raises(RuntimeError, match="once"):
        next(reader.chunks())


def test_a_client_that_was_lent_stays_open(served: Served) -> None:
    with ResolverClient(served.http.url) as client:
        for _ in range(2):
            with Reader(client, STREAM.vhost, STREAM.name) as reader:
                assert offsets(reader) == list(range(TAIL))


def test_several_ranges_are_fetched_at_a_time(served: Served) -> None:
    together = threading.Barrier(3)

    def faults(get: Get) -> None:
        if get.number < 3:
            together.wait(5)

    served.faults = faults
    assert offsets(served.reader(connections=3)) == list(range(TAIL))


NOT_RESTORED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InvalidObjectState</Code><Message>The operation is not valid'
    b" for the object's storage class</Message><StorageClass>DEEP_ARCHIVE</StorageClass></Error>"
)


def test_a_range_in_an_archived_class_raises_at_once_and_names_the_command_that_restores_it(served: Served) -> None:
    table, incarnation = served.archive.table, STREAM.incarnation
    for number in (1, 2):
        move_to_class(table, incarnation, number, StorageClass.DEEP_ARCHIVE)
    cold = {entry.key for entry in table.log_from_offset(incarnation, Offset(0), 3).entries[1:]}
    served.http.objects.faults = lambda get: Fault(status=403, body=NOT_RESTORED) if get.key in cold else None
    found = []
    with pytest.raises(NotRestoredError) as raised:
        found += [message.offset for message in served.reader(connections=1).messages()]
    assert raised.value.storage_class == StorageClass.DEEP_ARCHIVE
    assert raised.value.command == "coldstream restore orders --offsets 50:150"
    assert str(raised.value).endswith(": coldstream restore orders --offsets 50:150")
    assert len([get for get in served.http.objects.gets if get.key == raised.value.key]) == 1


def test_another_refusal_is_no_matter_of_storage_classes(served: Served) -> None:
    served.http.objects.faults = lambda _: Fault(status=403)
    with pytest.raises(AccessDeniedError):
        offsets(served.reader())


def test_a_start_below_the_floor_begins_with_what_is_left_and_the_reader_knows_the_floor(served: Served) -> None:
    remove_prefix(served.archive.table, STREAM.incarnation, 2)
    reader = served.reader(AtOffset(Offset(7)))
    assert offsets(reader)[0] == 100
    assert (reader.floor, reader.gaps) == (100, [])
    reader = served.reader(AtOffset(Offset(120)))
    assert offsets(reader)[0] == 120
    assert reader.floor is None


def test_what_is_removed_while_a_reader_comes_to_it_is_a_gap_that_says_why(served: Served) -> None:
    reader = served.reader(connections=1, prefetch_bytes=1, range_bytes=1)
    reader._query = replace(reader._query, bounds=replace(reader._query.bounds, max_ranges=1))
    messages = reader.messages()
    found = [next(messages).offset for _ in range(20)]
    remove_prefix(served.archive.table, STREAM.incarnation, 3)
    with pytest.raises(GapError) as gap:
        found += [message.offset for message in messages]
    assert gap.value.reason == REMOVED
    assert (gap.value.first_offset, gap.value.next_offset) == (reader.position, 150)
