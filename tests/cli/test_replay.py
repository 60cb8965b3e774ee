"""`coldstream replay` into tables, and what it refuses."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Archive, Cli, amqp, body_of
from tests.support.broker import Broker


@pytest.fixture(autouse=True)
def _archive(archive: Archive) -> None:
    """Have the settings that an archive's owner has."""


def offsets(path: Path) -> list[int]:
    files = [found for found in path.rglob("*.parquet") if "_coldstream" not in found.parts]
    return sorted(offset for found in files for offset in pq.ParquetFile(found).read()["offset"].to_pylist())


def test_a_stream_becomes_a_table_and_a_second_run_adds_nothing(archive: Archive, cli: Cli, tmp_path: Path) -> None:
    tail = archive.borders[-1]
    (first,) = cli("replay", "orders", "--to-parquet", tmp_path, "-o", "json").json
    assert (first["rows"], first["complete"], first["errors"]) == (tail, True, [])
    assert first["streams"][0]["stream"] == "orders"
    (second,) = cli("replay", "orders", "--to-parquet", tmp_path, "-o", "json").json
    assert (second["rows"], second["streams"][0]["present"]) == (0, tail)
    assert offsets(tmp_path) == list(range(tail))


def test_a_range_becomes_lines_of_json(cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", "orders", "--to-jsonl", tmp_path, "--from", 13, "--to", 15, "--partition-by", "none", "--gzip")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[:7] == ["/", "orders", "13", "15", "2", "2", "1"]
    (path,) = tmp_path.glob("*.jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert [(row["offset"], row["value"]) for row in rows] == [(13, body_of(13)), (14, body_of(14))]


def test_rows_pass_a_function_of_the_users(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rows.py").write_text("def odd(row):\n    return row if row['offset'] % 2 else None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    arguments = ("replay", "orders", "--to-parquet", tmp_path / "table", "--to", 6, "--transform", "my_rows:odd")
    (summary,) = cli(*arguments, "-o", "json").json
    assert (summary["messages"], summary["rows"]) == (6, 3)
    assert offsets(tmp_path / "table") == [1, 3, 5]


def test_a_table_in_s3_is_named_by_its_url(cli: Cli) -> None:
    path = f"s3://{os.environ['COLDSTREAM_BUCKET']}/tables/orders"
    assert cli("replay", "orders", "--to-jsonl", path, "--to", 5, "-o", "json").json[0]["rows"] == 5
    assert cli("replay", "orders", "--to-jsonl", path, "--to", 7, "-o", "json").json[0]["rows"] == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--to-stream"),
        (("--to-parquet", "a", "--to-jsonl", "b"), "one of them"),
        (("--to-parquet", "a", "--gzip"), "--gzip"),
        (("--to-parquet", "a", "--rate", "5"), "--rate"),
        (("--to-stream", "a", "--rate", "0"), "--rate"),
        (("--to-stream", "a", "--routing-key", "properties.subject"), "--routing-key"),
        (("--to-parquet", "a", "--to", "last"), "--to"),
        (("--to-parquet", "a", "--partition-by", "week"), "--partition-by"),
        (("--to-parquet", "a", "--transform", "nothing:there"), "transform"),
        (("--to-parquet", "gs://a/b"), "gs://a/b"),
        (("--to-stream", "a", "--broker", "amqp://localhost"), "broker address"),
    ],
)
def test_a_meaningless_request_is_refused(
    arguments: tuple[str, ...], named: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("replay", "orders", *arguments)
    assert (done.code, done.out) == (2, "")
    assert named in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_not_archived_is_not_found(cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", "nothing", "--to-parquet", tmp_path / "table")
    assert done.code == 3
    assert "nothing" in done.err


def test_a_gap_ends_one_stream_and_not_the_others(archive: Archive, cli: Cli, tmp_path: Path) -> None:
    done = cli("replay", "torn", "orders", "--to-parquet", tmp_path, "-o", "json")
    assert done.code == 4
    (summary,) = done.json
    assert [stream["complete"] for stream in summary["streams"]] == [False, True]
    assert "gap" in summary["errors"][0]
    assert not summary["complete"]
    skipped = cli("replay", "torn", "--to-parquet", tmp_path, "--on-gap", "skip", "-o", "json")
    assert skipped.code == 0
    assert len(skipped.json[0]["streams"][0]["gaps"]) == 1


def test_a_stream_goes_into_a_stream_of_a_broker_once(archive: Archive, cli: Cli, broker: Broker) -> None:
    arguments = ("replay", "orders", "--to-stream", "replayed", "--broker", broker.stream_uri, "-o", "json")
    with broker.connect() as streams:
        streams.create_stream("replayed", max_segment_bytes=1_000_000)
        (first,) = cli(*arguments, "--from", 5, "--to", 25).json
        assert (first["target"], first["messages"], first["complete"]) == ("replayed", 20, True)
        (second,) = cli(*arguments, "--from", 5, "--to", 30).json
        assert (second["messages"], second["streams"][0]["resumed_at"]) == (5, 25)
        found = [message for _, message in streams.read("replayed", 25)]
    assert found == [amqp(body_of(offset).encode()) for offset in range(5, 30)]


def test_a_stream_that_the_broker_does_not_have_is_to_be_declared_first(cli: Cli, broker: Broker) -> None:
    done = cli("replay", "orders", "--to-stream", "never-declared", "--broker", broker.stream_uri)
    assert done.code == 3
    assert "never-declared" in done.err
    assert "declare the target first" in done.err


def test_an_exchange_that_is_not_there_fails_the_stream(cli: Cli, broker: Broker) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}/%2F"
    done = cli("replay", "orders", "--to-exchange", "nowhere", "--amqp-broker", uri, "-o", "json")
    assert done.code == 3
    assert "nowhere" in done.json[0]["errors"][0]


def test_messages_that_no_queue_takes_are_a_failure_unless_allowed(cli: Cli, broker: Broker) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}/%2F"
    arguments = ("replay", "orders", "--to-exchange", "amq.topic", "--to", "5", "--amqp-broker", uri)
    done = cli(*arguments)
    assert done.code == 3
    assert "no queue is bound for its routing key ''; bind one and run this again" in done.err
    allowed = cli(*arguments, "--allow-unroutable")
    assert allowed.code == 0
    assert "5 messages were dropped by the broker: no queue is bound for them" in allowed.err
    heads, row = allowed.out.splitlines()
    assert (heads.split("  ")[-1], row.split()[-1]) == ("unroutable", "5")
    assert cli(*arguments, "--allow-unroutable", "-o", "json").json[0]["streams"][0]["unroutable"] == 5


def test_a_replay_to_a_broker_begins_at_a_time_that_stays(cli: Cli) -> None:
    done = cli("replay", "orders", "--to-stream", "replayed", "--from", "-1h")
    assert (done.code, done.out) == (2, "")
    assert "--from: now-1h is another time whenever this is run" in done.err
