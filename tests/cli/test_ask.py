"""`streams`, `describe` and `resolve`."""

from __future__ import annotations

import re

from tests.cli.conftest import CHUNK_MS, ORDERS, START, Archive, Cli


def test_streams_are_listed_with_their_incarnations(archive: Archive, cli: Cli) -> None:
    assert {"vhost": "/", "name": "orders", "incarnation": ORDERS} in cli("streams", "--output", "json").json
    lines = [line.split() for line in cli("streams").out.splitlines()]
    assert lines[0] == ["vhost", "stream", "incarnation"]
    assert ["/", "orders", ORDERS] in lines


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


def test_a_stream_that_is_not_there_is_told_with_what_to_do(archive: Archive, cli: Cli) -> None:
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
    assert lines[-1] == f"tail: read on from the broker at offset {archive.tail}"


def test_an_offset_and_its_time_resolve_to_the_same_place(archive: Archive, cli: Cli) -> None:
    (by_offset,) = cli("resolve", "orders", "500", "--precise", "--output", "json").json
    (by_time,) = cli("resolve", "orders", f"timestamp:{START + 50 * CHUNK_MS}", "--precise", "--output", "json").json
    first = by_offset["ranges"][0]
    assert first["first_offset"] == 500
    assert first["range_header"] == f"bytes={first['first_byte']}-{first['next_byte'] - 1}"
    places = ("key", "first_byte", "next_byte")
    assert [first[place] for place in places] == [by_time["ranges"][0][place] for place in places]


def test_an_answer_that_is_bounded_goes_on_by_its_cursor(archive: Archive, cli: Cli) -> None:
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
    assert (done.code, done.out) == (0, f"tail: read on from the broker at offset {archive.tail}\n")


def test_a_gap_has_an_exit_code_of_its_own(archive: Archive, cli: Cli) -> None:
    done = cli("resolve", "torn", str(archive.gap[0]))
    assert done.code == 4
    assert done.out == f"gap: offsets {archive.gap[0]} to {archive.gap[1] - 1} (not archived yet, or lost)\n"
    assert cli("resolve", "torn", str(archive.gap[0]), "--output", "json").json[0]["outcome"] == "gap"


def test_a_spec_that_means_nothing_is_refused_with_those_that_do(archive: Archive, cli: Cli) -> None:
    done = cli("resolve", "orders", "yesterday")
    assert done.code == 2
    assert "first, last, next, an offset" in done.err


def test_a_bound_that_means_nothing_is_refused(archive: Archive, cli: Cli) -> None:
    assert cli("resolve", "orders", "--max-ranges", "1001").code == 2
    assert cli("resolve", "orders", "--max-ranges", "0").code == 2
