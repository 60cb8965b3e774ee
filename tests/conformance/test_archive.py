"""Recorded segments of a real broker: announced, archived by the upload function, resolved, read back."""

from __future__ import annotations

from pathlib import Path

import pytest
import urllib3

from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.shard_changes import first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, AtTimestamp
from coldstream.read.reader import Reader
from coldstream.resolve.answer import AnswerOutcome, Bounds, Continue, RangesQuery
from coldstream.resolve.super_answer import SuperOrder, SuperQuery
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs
from tests.support.deployed import DeployedArchive, stream_of
from tests.support.golden import GoldenLog, digest, golden_logs
from tests.support.segments import STREAM, write_stream
from tests.support.written_maps import write

LOGS = golden_logs()


@pytest.fixture(scope="module")
def archived(archive: DeployedArchive, rolled_logs: dict[str, Path]) -> DeployedArchive:
    """The archive, with every recorded segment in it."""
    announced = sum(archive.announce(rolled_logs[log.stream], stream_of(log)) for log in LOGS)
    assert announced == sum(len(log.segments) for log in LOGS)
    archive.settle()
    return archive


def query(log: GoldenLog, start) -> RangesQuery:
    return RangesQuery(log.vhost, log.stream, start)


def tail_of(log: GoldenLog) -> int:
    return log.chunks[-1].chunk_id + log.chunks[-1].records


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stream)
def test_every_message_comes_back_once_and_in_order(archived, log):
    with Reader(archived.stack.resolver_url, log.vhost, log.stream, FIRST) as reader:
        read = [digest(message.raw) for message in reader.messages()]
        assert reader.tail == tail_of(log)
    assert read == log.messages


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stream)
def test_presigned_urls_give_back_the_segments_byte_for_byte(archived, log):
    answer = archived.resolver.ranges(query(log, FIRST))
    assert answer.tail == tail_of(log)
    read = b"".join(get(found.url, found.byte_range.http) for found in answer.ranges)
    assert read == b"".join(segment.read_bytes()[SEGMENT_HEADER_BYTES:] for segment in log.segments)


def test_a_presigned_url_grants_its_own_range_alone(archived):
    found = archived.resolver.ranges(query(LOGS[0], FIRST)).ranges[0]
    with pytest.raises(AssertionError, match="403"):
        get(found.url, f"bytes=0-{found.byte_range.end}")
    with pytest.raises(AssertionError, match="403"):
        get(found.url, None)


def test_a_timestamp_attaches_where_osiris_does(archived):
    log = next(log for log in LOGS if log.stream == "tracking")
    for chunk in log.chunks[:: len(log.chunks) // 10]:
        expected = next(other.chunk_id for other in log.chunks if other.timestamp >= chunk.timestamp)
        found = archived.resolver.ranges(query(log, AtTimestamp(TimestampMs(chunk.timestamp)))).ranges[0]
        assert found.first_offset <= expected < found.next_offset


def test_past_the_end_there_is_the_tail(archived):
    for start in (NEXT, AtOffset(Offset(tail_of(LOGS[0]) + 100)), AtTimestamp(TimestampMs(9_999_999_999_999))):
        answer = archived.resolver.ranges(query(LOGS[0], start))
        assert (answer.outcome, answer.tail) == (AnswerOutcome.TAIL, tail_of(LOGS[0]))


def test_a_sharded_stream_is_resolved_whole_by_its_map(archived):
    logs = [log for log in LOGS if log.vhost == LOGS[0].vhost]
    partitions = [Partition(0, log.stream, incarnation=stream_of(log).incarnation) for log in logs]
    found = first_map(
        logs[0].vhost,
        "conformance",
        ShardKind.STREAMS,
        ShardHash.RANDOM,
        partitions=partitions,
        definition="{}",
        at=TimestampMs(1),
    )
    write(DynamoTable(archived.table_name), found)
    assert archived.resolver.shard_map(found.vhost, found.name) == found
    read = {log.stream: [] for log in logs}
    start = FIRST
    while start is not None:
        answer = archived.resolver.super_ranges(
            SuperQuery(found.vhost, found.name, start, SuperOrder.ARRIVAL, Bounds(max_ranges=2))
        )
        for one in answer.partitions:
            read[one.name] += [get(each.url, each.byte_range.http) for each in one.ranges]
        start = None if answer.cursor is None else Continue(answer.cursor)
    for log in logs:
        segments = b"".join(segment.read_bytes()[SEGMENT_HEADER_BYTES:] for segment in log.segments)
        assert b"".join(read[log.stream]) == segments


def test_a_name_without_a_map_is_no_sharded_stream(archived):
    assert archived.resolver.shard_map("/", "nobody") is None


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stream)
def test_the_same_events_again_change_nothing(archived, rolled_logs, log):
    table = DynamoTable(archived.table_name)
    before = table.head(stream_of(log).incarnation)
    archived.announce(rolled_logs[log.stream], stream_of(log))
    archived.settle()
    assert table.head(stream_of(log).incarnation) == before
    assert archived.stack.dead_letters() == 0


def test_what_was_archived_leaves_nothing_staged(archived, s3):
    found = s3.list_objects_v2(Bucket=archived.objects.bucket, Prefix=f"{archived.keys.prefix}staging/")
    assert found["KeyCount"] == 0


def test_what_fails_verification_goes_to_quarantine_and_is_not_staged_any_more(archived, s3, tmp_path):
    write_stream(tmp_path, chunks=250)
    damaged = find_rolled(tmp_path)[0]
    data = bytearray(damaged.path.read_bytes())
    data[-1] ^= 0xFF
    damaged.path.write_bytes(data)
    archived.announce(tmp_path, STREAM)
    archived.settle()
    prefix = archived.keys.prefix
    assert s3.list_objects_v2(Bucket=archived.objects.bucket, Prefix=f"{prefix}quarantine/")["KeyCount"] == 2
    assert s3.list_objects_v2(Bucket=archived.objects.bucket, Prefix=f"{prefix}staging/")["KeyCount"] == 0
    assert archived.resolver.describe(STREAM.vhost, STREAM.name).head.quarantined == 1


def test_an_event_that_means_nothing_ends_in_the_dead_letter_queue(archived):
    before = archived.stack.dead_letters()
    archived.bus.put(source=SOURCE, detail_type=DETAIL_TYPE, detail='{"version": 1}')
    archived.settle()
    assert archived.stack.dead_letters() == before + 1


def get(url: str, byte_range: str | None) -> bytes:
    headers = {} if byte_range is None else {"Range": byte_range}
    answer = urllib3.request("GET", url, headers=headers, retries=False)
    assert answer.status == 206, answer.status
    return answer.data
