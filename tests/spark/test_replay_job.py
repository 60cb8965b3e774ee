"""spark/replay.py into tables: every row once, also after tasks that fail and runs that are killed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.amqp_samples import encode
from tests.support.broker import Broker
from tests.support.source import Emulated, body, chunks

Job = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def job(spark: Any, archive: Emulated, capfdbinary: pytest.CaptureFixture[bytes]) -> Job:
    """Runs the job; its exit code and summary come back, none where it failed."""
    from replay import main  # noqa: PLC0415  only tests with Spark have it

    def run(*arguments: object) -> tuple[int, dict[str, Any]]:
        given = [f"--{name}={value}" for name, value in archive.options.items()]
        code = main([*map(str, arguments), *given], spark)
        out = capfdbinary.readouterr().out
        return code, json.loads(out) if out else {}

    return run


def files(path: Path, suffix: str) -> list[Path]:
    return sorted(found for found in path.rglob(f"*{suffix}") if "_coldstream" not in found.parts)


def offsets(spark: Any, path: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(path)).select("offset").collect())


def test_a_table_has_the_rows_of_the_source_and_a_second_run_adds_what_is_new(
    source: Any, orders: Emulated, job: Job, tmp_path: Path
) -> None:
    arguments = ("--stream", "orders", "--to-parquet", tmp_path)
    code, summary = job(*arguments)
    assert (code, summary["messages"], summary["complete"]) == (0, 40, True)
    options = orders.options | {"stream": "orders"}
    rows = source.read.format("coldstream").options(**options).load()
    table = source.read.parquet(str(tmp_path))
    assert table.select(rows.columns).orderBy("offset").collect() == rows.orderBy("offset").collect()
    assert {path.parent.relative_to(tmp_path).as_posix() for path in files(tmp_path, ".parquet")} == {
        "stream=orders/date=1970-01-01"
    }
    assert job(*arguments)[1]["messages"] == 0
    again = orders.stream("orders")
    again.stored = {}
    again.add(40, chunks(2, start_ms=90_000_000))
    assert job(*arguments)[1]["messages"] == 10
    assert offsets(source, tmp_path) == list(range(50))


def test_lines_of_json_are_those_of_the_command_line(spark: Any, archive: Emulated, job: Job, tmp_path: Path) -> None:
    stream = archive.stream("orders")
    stream.others[1] = encode(body=b"\xff", application_properties={"k": "v"})
    stream.add(0, chunks(1, 2))
    code, _ = job("--stream", "orders", "--to-jsonl", tmp_path, "--gzip", "--partition-by", "none")
    assert code == 0
    (path,) = files(tmp_path, ".json.gz")
    first, second = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
    common = {"stream": "orders", "chunk_timestamp": "1970-01-01T00:00:01.000Z"}
    assert first == {"value": body(0).decode(), "offset": 0} | common
    assert second == {"value_base64": "/w==", "offset": 1, "application_properties": {"k": "v"}} | common


def test_a_range_ends_where_it_is_told_and_stays_that_of_its_checkpoint(
    spark: Any, orders: Emulated, job: Job, tmp_path: Path
) -> None:
    arguments = ("--stream", "orders", "--to-parquet", tmp_path, "--from", 7)
    code, summary = job(*arguments, "--to", 23)
    assert (code, summary["messages"], summary["complete"]) == (0, 16, True)
    (stream,) = summary["streams"]
    assert [stream[name] for name in ("from", "to", "resumed_at", "done_to", "complete")] == [7, 23, 7, 23, True]
    assert offsets(spark, tmp_path) == list(range(7, 23))
    assert job(*arguments, "--to", 23)[1]["messages"] == 0
    assert job(*arguments) == (2, {})
    assert offsets(spark, tmp_path) == list(range(7, 23))


def test_what_lies_past_the_end_is_not_read(spark: Any, orders: Emulated, job: Job, tmp_path: Path, s3: Any) -> None:
    """The second fragment is not there any more."""
    bucket = orders.options["bucket"]
    s3.delete_object(Bucket=bucket, Key=max(one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]))
    code, summary = job("--stream", "orders", "--to-parquet", tmp_path, "--to", 18)
    assert (code, summary["messages"]) == (0, 18)


def test_an_end_that_is_not_archived_yet_is_reached_by_a_later_run(
    spark: Any, archive: Emulated, job: Job, tmp_path: Path
) -> None:
    stream = archive.stream("orders")
    stream.add(0, chunks(2))
    arguments = ("--stream", "orders", "--to-parquet", tmp_path, "--to", "1970-01-01T00:00:04Z")
    assert job(*arguments)[1]["streams"][0]["to"] == 10
    stream.stored = {}
    stream.add(10, chunks(5, start_ms=3_000))
    code, summary = job(*arguments)
    assert (code, summary["messages"], summary["streams"][0]["done_to"]) == (0, 5, 15)
    assert offsets(spark, tmp_path) == list(range(15))


def test_every_run_ends_where_the_archive_does_in_batches_of_bounded_size(
    spark: Any, archive: Emulated, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream_spark.tables.BATCH_BYTES", 500)
    stream = archive.stream("orders", sparse_bytes=1)
    stream.add(0, chunks(4))
    arguments = ("--stream", "orders", "--to-parquet", tmp_path)
    for number, tail in enumerate((20, 40)):
        code, summary = job(*arguments)
        assert (code, summary["messages"], summary["complete"]) == (0, 20, True)
        assert summary["batches"] >= 2
        assert [summary["streams"][0][name] for name in ("resumed_at", "done_to")] == [tail - 20, tail]
        assert offsets(spark, tmp_path) == list(range(tail))
        if not number:
            stream.stored = {}
            stream.add(20, chunks(4, start_ms=9_000))


def test_a_batch_that_a_killed_run_had_begun_ends_where_it_was_to(
    spark: Any, archive: Emulated, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = archive.stream("orders", sparse_bytes=1)
    stream.add(0, chunks(4))
    arguments = ("--stream", "orders", "--to-parquet", tmp_path)
    job(*arguments)
    spark_has = tmp_path / "_coldstream/checkpoint/commits/0", tmp_path / "_spark_metadata/0"
    for lost, messages in ((spark_has, 20), (spark_has[:1], 0)):
        for path in lost:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink()
        monkeypatch.setattr("coldstream_spark.tables.BATCH_BYTES", 300)
        code, summary = job(*arguments)
        assert (code, summary["messages"], summary["complete"]) == (0, messages, True)
        assert summary["streams"][0]["resumed_at"] == 0
        assert offsets(spark, tmp_path) == list(range(20))


def test_what_spark_leaves_out_is_told_and_the_run_has_failed(
    spark: Any, orders: Emulated, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--stream", "orders", "--to-parquet", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("coldstream_spark.tables.TableJob._next", lambda _, __, now, *___: now)
        code, summary = job(*arguments)
    assert (code, summary["messages"], summary["complete"]) == (1, 0, False)
    assert summary["streams"][0]["done_to"] == 0
    assert "read to offset 0, and not to 40" in summary["errors"][0]
    assert job(*arguments)[1]["complete"] is True


def test_a_task_that_fails_ends_the_run_and_the_next_one_goes_on_with_every_row_once(
    spark: Any, orders: Emulated, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "failed"
    (tmp_path / "failing_once.py").write_text(
        "from pathlib import Path\n"
        f"MARKER = Path({str(marker)!r})\n"
        "def change(row):\n"
        "    if row['offset'] == 33 and not MARKER.exists():\n"
        "        MARKER.touch()\n"
        "        raise RuntimeError('a task that fails')\n"
        "    return row if row['offset'] % 2 else None\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("coldstream_spark.tables.BATCH_BYTES", 200)
    arguments = ("--stream", "orders", "--to-parquet", tmp_path / "table", "--transform", "failing_once:change")
    code, summary = job(*arguments)
    assert (code, summary) == (1, {})
    assert marker.exists()
    before = offsets(spark, tmp_path / "table")
    assert before == sorted(set(before))
    assert job(*arguments)[0] == 0
    assert offsets(spark, tmp_path / "table") == list(range(1, 40, 2))


def test_a_gap_is_passed_over_if_told_so(spark: Any, holed: Emulated, job: Job, tmp_path: Path) -> None:
    assert job("--stream", "orders", "--to-parquet", tmp_path, "--on-gap", "skip")[0] == 0
    assert offsets(spark, tmp_path) == [*range(10), *range(20, 30)]


def test_a_stream_is_replayed_in_order_each_message_once_whatever_dies(
    archive: Emulated, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    source = archive.stream("orders")
    source.add(0, chunks(20, 20))
    (tmp_path / "dying.py").write_text(
        "import os, random\n"
        "from pathlib import Path\n"
        f"DEATHS = Path({str(tmp_path)!r}, 'deaths')\n"
        "def change(message):\n"
        "    deaths = DEATHS.stat().st_size if DEATHS.exists() else 0\n"
        "    if message.offset > 100 * deaths + 50 and deaths < 3 and random.random() < 0.05:\n"
        "        with DEATHS.open('a') as file:\n"
        "            file.write('x')\n"
        "        os._exit(1)\n"
        "    return message\n"
    )
    monkeypatch.chdir(tmp_path)
    with broker.connect() as streams:
        streams.create_stream("replayed by spark", max_segment_bytes=1_000_000)
        target = ("--to-stream", "replayed by spark", "--broker", broker.stream_uri)
        codes = [job("--stream", "orders", *target, "--transform", "dying:change")[0] for _ in range(4)]
        assert codes == [1, 1, 1, 0]
        assert job("--stream", "orders", *target, "--transform", "dying:change")[1]["messages"] == 0
        streams.publish("replayed by spark", [b"the end"])
        found = [message for _, message in streams.read("replayed by spark", 401)]
    assert found == [*map(source.message, range(400)), b"the end"]


def test_messages_that_no_queue_takes_fail_the_job_unless_allowed(orders: Emulated, job: Job, broker: Broker) -> None:
    uri = f"amqp://guest:guest@{broker.host}:{broker.amqp_port}/%2F"
    target = ("--stream", "orders", "--to", "5", "--to-exchange", "amq.topic", "--amqp-broker", uri)
    code, summary = job(*target)
    assert (code, summary["complete"]) == (3, False)
    assert "no queue is bound for its routing key" in summary["errors"][0]
    code, summary = job(*target, "--allow-unroutable")
    assert (code, summary["complete"], summary["streams"][0]["unroutable"]) == (0, True, 5)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--stream", "nothing", "--to-parquet", "t"), 3),
        (("--stream", "orders", "--to-parquet", "t", "--partition-by", "week"), 2),
        (("--stream", "orders", "--to-stream", "t", "--broker", "amqp://localhost"), 2),
        (("--stream", "orders", "--to-stream", "t", "--rate", "0"), 2),
        (("--stream", "orders", "--to-parquet", "t", "--from", "now-1h"), 2),
        (("--stream", "orders", "--to-parquet", "t", "--transform", "no:thing"), 2),
    ],
)
def test_what_means_nothing_is_refused(arguments: tuple[str, ...], code: int, orders: Emulated, job: Job) -> None:
    assert job(*arguments) == (code, {})
