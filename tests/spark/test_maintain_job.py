"""spark/maintain.py in a real Spark, on an archive of the emulated AWS."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import maintain
import pytest

from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.lifecycle.policies import set_policy
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.policy import Policy
from coldstream.rebuild.compare import differences
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from tests.support.maintenance import LaterArchive
from tests.support.small_fragments import ORDERS, OTHERS, PREFIX, SmallFragments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Callable[..., tuple[int, Any]]

KILLED_ONCE = """
import os, pathlib, signal, sys

import maintain
from coldstream_spark.maintenance.tasks import TaskRunner
from pyspark.sql import SparkSession

marker, *arguments = sys.argv[1:]
run = TaskRunner.map

def killed_once(self, work, tasks):
    def die(task):
        result = work(task)
        if not os.path.exists(marker):
            pathlib.Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return run(self, die, tasks)

TaskRunner.map = killed_once
sys.exit(maintain.main(arguments, SparkSession.builder.master("local[2,4]").getOrCreate()))
"""
"""Kills the worker of the first task that has done its work, in a Spark that tries a task again."""


@pytest.fixture
def archived(dynamo_table: DynamoTable, s3_objects: S3Objects, tmp_path: Path) -> SmallFragments:
    archived = SmallFragments(dynamo_table, s3_objects, tmp_path)
    for stream in (ORDERS, OTHERS):
        ControlObjects(s3_objects, Keys(PREFIX)).write_stream(stream)
    return archived


@pytest.fixture
def where(archived: SmallFragments, table_name: str) -> list[str]:
    """The options that say where the archive is: the environment does not."""
    return ["--table", table_name, "--bucket", archived.objects.bucket, "--prefix", PREFIX]


@pytest.fixture
def job(spark: SparkSession, where: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> Job:
    """Run the job; return its exit code, and the summary if there is one."""

    def run(*arguments: str) -> tuple[int, Any]:
        capsysbinary.readouterr()
        code = maintain.main([*arguments, *where], spark)
        out = capsysbinary.readouterr().out.splitlines()
        assert len(out) <= 1
        return code, json.loads(out[0]) if out else None

    return run


@pytest.fixture
def _later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of the archive be ahead."""
    monkeypatch.setattr(maintain, "RemoteArchive", LaterArchive)


def stored(archived: SmallFragments) -> set[str]:
    return {key for key in archived.objects.keys(PREFIX) if "/control/" not in key}


def test_retention_removes_what_the_policy_lets_go(archived: SmallFragments, job: Job) -> None:
    log, others = archived.log(), archived.log(OTHERS)
    stores = LifecycleStores.open(archived.table, archived.objects, Keys(PREFIX), grace_ms=0)
    set_policy(stores, Policy("small", "*/orders", max_bytes=sum(entry.object_bytes for entry in log[2:])))
    code, told = job("retention", "--all", "--dry-run")
    assert (code, told["dry_run"], told["objects"], len(told["streams"])) == (0, True, 2, 2)
    assert archived.log() == log
    code, told = job("retention", "--stream", "orders", "--stream", "others")
    assert (code, told["failed"], told["objects"]) == (0, 0, 2)
    assert [entry.key for entry in archived.log()] == [entry.key for entry in log[2:]]
    assert archived.log(OTHERS) == others
    assert {entry.key for entry in log} <= stored(archived)


def test_the_sweep_deletes_what_is_due(archived: SmallFragments, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(archived)
    stores = LifecycleStores.open(archived.table, archived.objects, Keys(PREFIX), grace_ms=0)
    set_policy(stores, Policy("small", "*/orders", max_bytes=1))
    code, told = job("retention", "--all")
    removed = told["objects"]
    assert (code, removed > 0, stored(archived)) == (0, True, before)
    assert job("sweep", "--all")[1]["objects"] == 0
    monkeypatch.setattr(maintain, "RemoteArchive", LaterArchive)
    code, told = job("sweep", "--all", "--dry-run")
    assert (code, told["objects"], stored(archived)) == (0, removed, before)
    code, told = job("sweep", "--stream", "orders")
    assert (code, told["failed"], told["objects"]) == (0, 0, removed)
    assert stored(archived) == {entry.key for stream in (ORDERS, OTHERS) for entry in archived.log(stream)}


@pytest.mark.usefixtures("_later")
def test_garbage_is_told_and_deleted_from_every_range_of_keys(archived: SmallFragments, job: Job) -> None:
    before, keys = stored(archived), Keys(PREFIX)
    litter = {
        keys.fragment(stream.incarnation, entry.first_offset, 7)
        for stream in (ORDERS, OTHERS)
        for entry in archived.log(stream)[1::2]
    }
    for key in litter:
        archived.objects.put_new(key, io.BytesIO(b"bytes"), size_bytes=5, crc32=crc32(b"bytes"))
    code, told = job("garbage", "--all", "--part", "3", "--delete", "--dry-run")
    found = {(one["kind"], one["state"]): one["objects"] for one in told["findings"]}
    assert (code, told["delete"], found["fragment of a later generation", "garbage"]) == (0, False, len(litter))
    assert found["fragment", "in use"] == len(before)
    assert stored(archived) == before | litter
    code, told = job("garbage", "--stream", "others", "--part", "3", "--delete")
    assert (code, told["deletions"]["objects"]) == (0, len(archived.log(OTHERS)) // 2)
    code, told = job("garbage", "--all", "--part", "3", "--delete")
    assert (code, told["deletions"]["objects"]) == (0, len(archived.log()) // 2)
    assert stored(archived) == before
    assert list(archived.read()) == archived.chunks


def test_a_long_stream_is_scrubbed_in_ranges_and_a_damaged_fragment_is_found(
    archived: SmallFragments, job: Job, s3: Any
) -> None:
    fragments = len(archived.log()) + len(archived.log(OTHERS))
    code, told = job("scrub", "--all", "--part", "3")
    assert (code, told["streams"], told["fragments"], told["damages"], told["unsettled"]) == (0, 2, fragments, {}, 0)
    entry = archived.corrupt(s3, 4)
    code, told = job("scrub", "--stream", "orders", "--deep", "--part", "3")
    assert (code, told["fragments"], told["failed"]) == (5, len(archived.log()), 0)
    assert {one["key"] for one in told["findings"]} == {entry.key}


def test_totals_that_are_wrong_are_found_in_a_stream_that_was_walked_in_ranges(
    archived: SmallFragments, job: Job, dynamodb: Any, table_name: str
) -> None:
    dynamodb.update_item(
        TableName=table_name,
        Key={"stream": {"S": ORDERS.incarnation}, "item": {"S": "log#head"}},
        UpdateExpression="ADD messages :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    code, told = job("scrub", "--stream", "orders", "--part", "3")
    assert (code, told["damages"]) == (5, {"TotalsDiffer": 1})


def test_several_streams_and_one_in_slices_are_rebuilt_as_they_were(
    archived: SmallFragments, job: Job, create_table: Callable[[], str], dynamodb: Any
) -> None:
    target = create_table()
    arguments = ("rebuild", "--all", "--to-table", target, "--part")
    most = str(min(len(archived.log()), len(archived.log(OTHERS))))
    code, told = job(*arguments, most, "--dry-run")
    assert (code, told["stream_count"], told["failed"]) == (0, 2, 0)
    assert dynamodb.scan(TableName=target)["Items"] == []
    code, told = job(*arguments, most)
    assert (code, told["written"]) == (0, len(archived.log()) + len(archived.log(OTHERS)))
    for stream in (ORDERS, OTHERS):
        assert list(differences(archived.table, DynamoTable(target), stream.incarnation)) == []
    code, told = job(*arguments, "3")
    assert (code, told["written"]) == (0, 0)


def test_an_erasure_is_rewritten_by_executors_and_committed_in_order(archived: SmallFragments, job: Job) -> None:
    log = archived.log()
    first, following = log[1].first_offset, log[4].next_offset
    arguments = ("erase", "--stream", "orders", "--offsets", f"{first}:{following}", "--reason", "a test")
    code, told = job(*arguments, "--dry-run", "--part", "2")
    assert (code, told["fragments"], told["messages"] > 0) == (0, 4, True)
    assert archived.log() == log
    messages = told["messages"]
    code, told = job(*arguments, "--by", "somebody")
    assert (code, told["is_done"], told["fragments"], told["messages"]) == (0, True, 4, messages)
    assert [entry.erased for entry in archived.log()] == [1 <= number < 5 for number in range(len(log))]
    (erasure,) = archived.table.erasures(ORDERS.incarnation)
    assert (erasure.by, erasure.digest, erasure.reached) == ("somebody", told["digest"], following)
    # Each old object is there until the sweep, and each new one once.
    assert len(stored(archived)) == len(log) + 4 + len(archived.log(OTHERS))
    assert [chunk_id for chunk_id, _ in archived.read()] == [chunk_id for chunk_id, _ in archived.chunks]


def test_a_task_that_was_killed_is_tried_again(
    archived: SmallFragments,
    where: list[str],
    create_table: Callable[[], str],
    spark_submit: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    script, marker, target = tmp_path / "killed_once.py", tmp_path / "killed", create_table()
    script.write_text(KILLED_ONCE)
    process = spark_submit(script, str(marker), "rebuild", "--all", "--to-table", target, "--part", "3", *where)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert marker.exists()
    assert json.loads(out.splitlines()[-1])["stream_count"] == 2
    for stream in (ORDERS, OTHERS):
        assert list(differences(archived.table, DynamoTable(target), stream.incarnation)) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["scrub", "--stream", "unknown"], 3),
        (["rebuild", "--stream", "unknown", "--to-table", "another"], 3),
        (["sweep"], 2),
        (["sweep", "--all", "--jobs", "0"], 2),
        (["garbage", "--all", "--older-than", "5m"], 2),
        (["rebuild", "--all"], 2),
        (["erase", "--stream", "orders"], 2),
        (["erase", "--stream", "orders", "--where", "no_such_module:function"], 2),
    ],
)
def test_it_fails_as_the_commands_do(job: Job, arguments: list[str], code: int) -> None:
    assert job(*arguments) == (code, None)


def test_an_erasure_that_ended_at_a_damaged_fragment_goes_on_once_it_is_mended(
    archived: SmallFragments, job: Job, s3: Any
) -> None:
    log = archived.log()
    whole = s3.get_object(Bucket=archived.objects.bucket, Key=log[2].key)["Body"].read()
    archived.corrupt(s3, 2)
    assert job("erase", "--stream", "orders", "--offsets", "0:") == (5, None)
    assert [entry.erased for entry in archived.log()[:3]] == [True, True, False]
    s3.put_object(Bucket=archived.objects.bucket, Key=log[2].key, Body=whole)
    code, told = job("erase", "--stream", "orders", "--resume")
    assert (code, [one["is_done"] for one in told["erasures"]]) == (0, [True])
    assert all(entry.erased for entry in archived.log())
    assert job("erase", "--stream", "orders", "--resume") == (0, {"action": "erase", "erasures": []})


def test_an_erasure_with_an_id_is_begun_once_and_its_report_is_left(archived: SmallFragments, job: Job) -> None:
    offsets = f"{archived.log()[0].first_offset}:{archived.log()[1].next_offset}"
    arguments = ("erase", "--stream", "orders", "--offsets", offsets, "--reason", "x", "--by", "ann", "--report", "r-1")
    code, told = job(*arguments, "--erasure-id", "0123456789ab")
    assert (code, told["id"], told["is_done"]) == (0, "0123456789ab", True)
    report = archived.table.cursor("r-1")
    assert report is not None
    assert json.loads(report) == told
    code, again = job(*arguments, "--erasure-id", "0123456789ab")
    assert (code, again["id"], again["is_done"], again["messages"]) == (0, told["id"], True, told["messages"])
    assert len(archived.table.erasures(ORDERS.incarnation)) == 1


def test_digests_of_values_select_as_the_values_do(archived: SmallFragments, job: Job) -> None:
    selection = Selection(key=ValueDigest.of("nobody")).to_text()
    code, told = job("erase", "--stream", "orders", "--selection", selection, "--reason", "x", "--by", "ann")
    assert (code, told["messages"], told["is_done"]) == (0, 0, True)
    assert job("erase", "--stream", "orders", "--selection", selection, "--key", "x", "--reason", "x") == (2, None)


def test_what_ended_a_run_is_in_its_report(archived: SmallFragments, job: Job) -> None:
    assert job("scrub", "--stream", "gone", "--report", "r-2")[0] == 3
    report = archived.table.cursor("r-2")
    assert report is not None
    (error,) = json.loads(report)["errors"]
    assert "no stream 'gone'" in error
