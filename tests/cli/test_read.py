from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import coldstream
from coldstream.manifest.shard_changes import first_map
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.store.table import DynamoTable
from coldstream.units import TimestampMs, format_timestamp
from tests.cli.conftest import CHUNK_MESSAGES, CHUNK_MS, START, Archive, Cli, amqp, body_of
from tests.support.written_maps import map_writer

PACKAGE = str(Path(coldstream.__path__[0]).parent)


def offsets(cli: Cli, *arguments: str) -> list[int]:
    done = cli("read", "orders", *arguments)
    assert done.code == 0, done.err
    return [message["offset"] for message in done.json]


def test_every_archived_message_is_read_back_in_order(archive: Archive, cli: Cli) -> None:
    done = cli("read", "orders")
    assert done.err == ""
    assert [(message["offset"], message["body"]) for message in done.json] == [
        (offset, body_of(offset)) for offset in range(archive.tail)
    ]
    assert done.json[10]["timestamp"] == format_timestamp(TimestampMs(START + CHUNK_MS))


def test_reading_begins_at_the_very_offset_and_ends_before_the_other(archive: Archive, cli: Cli) -> None:
    assert offsets(cli, "--from", "1234", "--to", "1237") == [1234, 1235, 1236]


def test_reading_begins_and_ends_with_the_chunk_of_a_time(archive: Archive, cli: Cli) -> None:
    begin, end = START + 20 * CHUNK_MS, START + 22 * CHUNK_MS
    expected = list(range(20 * CHUNK_MESSAGES, 22 * CHUNK_MESSAGES))
    assert offsets(cli, "--from", f"timestamp:{begin}", "--to", f"timestamp:{end}") == expected
    assert offsets(cli, "--from", format_timestamp(TimestampMs(begin - 1)), "--to", str(expected[-1] + 1)) == expected


def test_two_adjacent_reads_have_every_message_once(archive: Archive, cli: Cli) -> None:
    at = format_timestamp(TimestampMs(START + 33 * CHUNK_MS + 1))
    assert offsets(cli, "--to", at) + offsets(cli, "--from", at) == list(range(archive.tail))


def test_no_more_than_the_limit_is_read(archive: Archive, cli: Cli) -> None:
    assert offsets(cli, "--from", "15", "--limit", "7") == list(range(15, 22))


def test_the_last_chunk_is_where_last_begins(archive: Archive, cli: Cli) -> None:
    assert offsets(cli, "--from", "last") == list(range(archive.tail - CHUNK_MESSAGES, archive.tail))


def test_at_the_tail_there_is_nothing_to_read(archive: Archive, cli: Cli) -> None:
    assert offsets(cli, "--from", "next") == []


def test_bodies_alone_are_lines(archive: Archive, cli: Cli) -> None:
    done = cli("read", "orders", "--from", "3", "--limit", "2", "--body")
    assert done.out == f"{body_of(3)}\n{body_of(4)}\n"


def test_raw_messages_come_after_their_lengths(archive: Archive, cli: Cli) -> None:
    messages = [amqp(body_of(offset).encode()) for offset in (3, 4)]
    expected = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    assert cli("read", "orders", "--from", "3", "--limit", "2", "--raw").raw == expected


def test_two_forms_at_once_are_refused(archive: Archive, cli: Cli) -> None:
    assert cli("read", "orders", "--raw", "--body").code == 2


def test_an_end_that_is_no_place_is_refused(archive: Archive, cli: Cli) -> None:
    done = cli("read", "orders", "--to", "next")
    assert done.code == 2
    assert "next is neither an offset nor a time" in done.err


def test_a_gap_ends_the_reading_after_what_comes_before_it(archive: Archive, cli: Cli) -> None:
    first, following = archive.gap
    done = cli("read", "torn")
    assert done.code == 4
    assert [message["offset"] for message in done.json] == list(range(first))
    assert f"offsets {first} to {following - 1}" in done.err
    assert f"continue after the gap, from offset {following}" in done.err
    assert cli("read", "torn", "--from", str(following), "--limit", "1").json[0]["offset"] == following


def test_a_gap_is_passed_over_on_request(archive: Archive, cli: Cli) -> None:
    first, following = archive.gap
    done = cli("read", "torn", "--on-gap", "skip")
    assert done.code == 0
    offsets = [message["offset"] for message in done.json]
    assert offsets == [*range(first), *range(following, offsets[-1] + 1)]
    assert f"passed over offsets {first} to {following - 1}" in done.err


def test_a_gap_at_the_end_of_the_read_does_not_matter(archive: Archive, cli: Cli) -> None:
    first = archive.gap[0]
    done = cli("read", "torn", "--to", str(first))
    assert done.code == 0, done.err
    assert [message["offset"] for message in done.json] == list(range(first))
    assert cli("read", "torn", "--to", str(first + 1)).code == 4


def test_a_closed_pipe_is_no_error(archive: Archive) -> None:
    environment = {**archive.stack.environment, "PYTHONPATH": PACKAGE, "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "coldstream.cli.main", "read", "orders"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr.read() == b""
    assert reading.returncode == 0


def test_a_sharded_stream_is_read_by_its_logical_name_and_from_a_position(archive: Archive, cli: Cli) -> None:
    partitions = [Partition(0, "orders")]
    found = first_map(
        "/",
        "all orders",
        ShardKind.STREAMS,
        ShardHash.MODULUS,
        partitions=partitions,
        definition="{}",
        at=TimestampMs(START),
    )
    map_writer(DynamoTable(os.environ["COLDSTREAM_TABLE"])).write(found, ShardEventKind.DECLARE, TimestampMs(START))
    done = cli("read", "all orders", "--limit", "12")
    assert [(message["stream"], message["offset"]) for message in done.json] == [("orders", at) for at in range(12)]
    assert done.err == "coldstream: go on with --from v1,0:12\n"
    rest = cli("read", "all orders", "--from", "v1,0:12", "--order", "time")
    assert [message["offset"] for message in rest.json] == list(range(12, archive.tail))
    assert rest.err == f"coldstream: go on with --from v1,0:{archive.tail}\n"
    assert cli("read", "all orders", "--to", "7").code == 2
    assert cli("read", "orders", "--from", "v1,0:12").code == 2
