"""`streams`, `describe` and `resolve`."""

from __future__ import annotations

import re

import pytest

from coldstream.store.ports import StreamPage
from coldstream.units import TimestampMs, format_timestamp
from tests.cli.conftest import CHUNK_MESSAGES, CHUNK_MS, ORDERS, START, Archive, Cli


def tail_line(archive: Archive) -> str:
    return f"tail: the broker, or the log of a direct stream, continues at offset {archive.tail}\n"


def test_streams_are_listed_as_they_are_described(archive: Archive, cli: Cli) -> None:
    listed = cli("streams", "--output", "json").json
    names = [(stream["vhost"], stream["name"]) for stream in listed]
    assert names == sorted(names)
    orders = next(stream for stream in listed if stream["name"] == "orders")
    (described,) = cli("describe", "orders", "-o", "json").json
    assert {"vhost": orders["vhost"], "name": orders["name"], "incarnation": orders["incarnation"]} == described[
        "stream"
    ]
    same = ("first_offset", "next_offset", "first_timestamp", "last_timestamp", "messages", "fragments", "data_bytes")
    assert [orders[name] for name in same] == [described[name] for name in same]


def test_streams_are_listed_with_sizes_times_and_age(
    archive: Archive, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = START + (archive.tail // CHUNK_MESSAGES - 1) * CHUNK_MS
    monkeypatch.setattr("coldstream.cli.streams.now_ms", lambda: TimestampMs(newest + 7_200_000))
    lines = [re.split(" {2,}", line) for line in cli("streams").out.splitlines()]
    heads = ["vhost", "stream", "messages", "size", "tail", "first chunk at", "newest chunk at", "age", "gaps"]
    assert lines[0] == [*heads, "incarnation"]
    row = next(line for line in lines if line[1] == "orders")
    times = ["2025-11-21T04:40:00.000Z", format_timestamp(TimestampMs(newest))]
    assert row[2] == row[4] == str(archive.tail)
    assert row[3].endswith("KiB")
    assert row[5:] == [*times, "2 h", "0", ORDERS]


def test_an_empty_archive_is_reported_with_what_fills_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", lambda *_, **__: StreamPage((), None))
    done = cli("streams", "--resolver", "http://127.0.0.1:9")
    assert done.code == 0
    for command in ("coldstream agent", "--max-lag", "coldstream agent status", "coldstream announce"):
        assert command in done.err


def test_a_description_tells_offsets_times_and_sizes(archive: Archive, cli: Cli) -> None:
    done = cli("describe", "orders")
    told = dict(re.split(" {2,}", line) for line in done.out.splitlines())
    assert told["incarnation"] == ORDERS
    assert told["first offset"] == "0"
    assert told["tail"] == str(archive.tail)
    assert told["messages"] == told["offsets"] == f"{archive.tail:,}"
    assert told["first chunk at"] == "2025-11-21T04:40:00.000Z"
    assert told["gaps"] == "0"


def test_a_description_lists_the_gaps(archive: Archive, cli: Cli) -> None:
    out = cli("describe", "torn").out
    assert f"{archive.gap[0]} to {archive.gap[1] - 1}: not archived yet, or lost" in out


def test_a_stream_that_is_not_there_is_reported_with_what_to_do(archive: Archive, cli: Cli) -> None:
    for command in ("describe", "resolve", "read"):
        done = cli(command, "nothing")
        assert done.code == 3
        assert done.out == ""
        assert "no stream 'nothing' in vhost '/'" in done.err
        assert "`coldstream streams` lists" in done.err


def test_resolving_shows_ranges_and_where_the_broker_goes_on(archive: Archive, cli: Cli) -> None:
    done = cli("resolve", "orders")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split("  ")[0].strip() == "first"
    assert "s3://" in lines[1]
    assert "/some/prefix/" in lines[1]
    assert lines[-1] == tail_line(archive).rstrip()


def test_an_offset_and_its_time_resolve_to_the_same_place(archive: Archive, cli: Cli) -> None:
    (by_offset,) = cli("resolve", "orders", "500", "--precise", "--output", "json").json
    (by_time,) = cli("resolve", "orders", f"timestamp:{START + 50 * CHUNK_MS}", "--precise", "--output", "json").json
    first = by_offset["ranges"][0]
    assert first["first_offset"] == 500
    assert first["range_header"] == f"bytes={first['first_byte']}-{first['next_byte'] - 1}"
    places = ("key", "first_byte", "next_byte")
    assert [first[place] for place in places] == [by_time["ranges"][0][place] for place in places]


def test_an_answer_that_is_bounded_continues_by_its_cursor(archive: Archive, cli: Cli) -> None:
    (whole,) = cli("resolve", "orders", "--output", "json").json
    (page,) = cli("resolve", "orders", "--max-ranges", "1", "--output", "json").json
    assert len(page["ranges"]) == 1
    assert f"more: --cursor {page['cursor']}" in cli("resolve", "orders", "--max-ranges", "1").out
    (rest,) = cli("resolve", "orders", "--cursor", page["cursor"], "--output", "json").json
    keys = [part["key"] for part in page["ranges"] + rest["ranges"]]
    assert keys == [part["key"] for part in whole["ranges"]]
    (small,) = cli("resolve", "orders", "--max-bytes", "1", "--output", "json").json
    assert len(small["ranges"]) == 1


def test_the_tail_is_an_answer_and_no_error(archive: Archive, cli: Cli) -> None:
    done = cli("resolve", "orders", "next")
    assert (done.code, done.out) == (0, tail_line(archive))


def test_a_gap_has_an_exit_code_of_its_own(archive: Archive, cli: Cli) -> None:
    done = cli("resolve", "torn", str(archive.gap[0]))
    assert done.code == 4
    assert done.out == f"gap: offsets {archive.gap[0]} to {archive.gap[1] - 1} (not archived yet, or lost)\n"
    assert cli("resolve", "torn", str(archive.gap[0]), "--output", "json").json[0]["outcome"] == "gap"


def test_a_spec_that_means_nothing_is_refused_with_those_that_do(archive: Archive, cli: Cli) -> None:
    done = cli("resolve", "orders", "tomorrow")
    assert done.code == 2
    assert "first, last, next, an offset" in done.err


def test_a_time_may_be_given_as_people_say_it(archive: Archive, cli: Cli) -> None:
    (whole,) = cli("resolve", "orders", "2025-11-21", "-o", "json").json
    assert whole["ranges"][0]["first_offset"] == 0
    for text in ("-1h", "yesterday", "today", "now"):
        assert cli("resolve", "orders", text).out == tail_line(archive)
    (read,) = cli("read", "orders", "--from", "2025-11-21", "--to", "-1h", "--limit", "1").json
    assert read["offset"] == 0
    assert cli("read", "orders", "--from", "-1h").out == ""


def test_a_bound_that_means_nothing_is_refused(archive: Archive, cli: Cli) -> None:
    assert cli("resolve", "orders", "--max-ranges", "1001").code == 2
    assert cli("resolve", "orders", "--max-ranges", "0").code == 2
