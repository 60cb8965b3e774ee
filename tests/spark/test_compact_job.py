"""spark/compact.py in a real Spark, on an archive of the emulated AWS."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compact
import pytest

from coldstream.compact.remote_writer import RemoteWriter
from coldstream.manifest.entry import Encoding
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from tests.support.server import ROOT
from tests.support.small_fragments import OTHERS, PREFIX, SmallFragments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def archived(dynamo_table: DynamoTable, s3_objects: S3Objects, tmp_path: Path) -> SmallFragments:
    return SmallFragments(dynamo_table, s3_objects, tmp_path)


@pytest.fixture
def where(archived: SmallFragments, table_name: str) -> list[str]:
    """The options that say where the archive is: the environment does not."""
    return ["--table", table_name, "--bucket", archived.objects.bucket, "--prefix", PREFIX]


@pytest.fixture
def job(
    spark: SparkSession, where: list[str], capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[int, Any]]:
    """Run the job; return its exit code, and the summary if there is one."""

    def run(*arguments: str) -> tuple[int, Any]:
        capsysbinary.readouterr()
        code = compact.main([*where, *arguments], spark)
        out = capsysbinary.readouterr().out.splitlines()
        assert len(out) <= 1
        return code, json.loads(out[0]) if out else None

    return run


def test_executors_write_and_the_driver_commits(archived: SmallFragments, job: Callable[..., tuple[int, Any]]) -> None:
    before = len(archived.log()), len(archived.log(OTHERS))
    code, told = job("--stream", "orders", "--stream", "others", "--dry-run")
    assert (code, told["dry_run"], told["fragments"], told["fragments_after"]) == (0, True, sum(before), 2)
    assert (len(archived.log()), len(archived.log(OTHERS))) == before
    code, told = job("--stream", "orders", "--stream", "others")
    assert (code, told["failed"], told["fragments"], told["fragments_after"]) == (0, 0, sum(before), 2)
    assert (len(archived.log()), len(archived.log(OTHERS))) == (1, 1)
    assert list(archived.read()) == archived.chunks
    code, told = job("--all", "--encoding", "zstd-seekable", "--level", "1", "--jobs", "2")
    assert (code, told["fragments_after"]) == (0, 2)
    assert [entry.encoding for entry in archived.log()] == [Encoding.ZSTD_SEEKABLE]
    assert list(archived.read()) == archived.chunks


def test_a_corrupt_fragment_is_told_and_the_others_go_on(
    archived: SmallFragments, job: Callable[..., tuple[int, Any]], s3: Any
) -> None:
    entry = archived.corrupt(s3, 2)
    code, told = job("--all", "--encoding", "zstd-seekable")
    assert (code, told["failed"], told["fragments_after"]) == (5, 1, 1)
    (failure,) = (failure for stream in told["streams"] for failure in stream["failures"])
    assert (failure["error"], failure["key"]) == ("BadCrcError", entry.key)
    assert len(archived.log(OTHERS)) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--stream", "unknown"], 3),
        ([], 2),
        (["--stream", "orders", "--older-than", "soon"], 2),
        (["--all", "--jobs", "0"], 2),
    ],
)
def test_it_fails_as_the_command_does(job: Callable[..., tuple[int, Any]], arguments: list[str], code: int) -> None:
    assert job(*arguments) == (code, None)


def test_interrupted_it_ends_its_tasks_and_the_next_run_goes_on(
    archived: SmallFragments, job: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compact._GroupProgress, "count", interrupt)
        assert job("--all", "--target-size", "70000") == (130, None)
    assert list(archived.read()) == archived.chunks
    code, told = job("--all")
    assert (code, told["failed"]) == (0, 0)
    assert list(archived.read()) == archived.chunks


def test_submitted_it_prints_its_summary_last_and_ends_with_its_code(
    archived: SmallFragments, where: list[str], spark_submit: Callable[..., subprocess.Popen[str]]
) -> None:
    process = spark_submit(ROOT / "spark/compact.py", *where, "--stream", "orders")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["fragments_after"] == 1
    assert list(archived.read()) == archived.chunks


def test_what_travels_says_where_aws_is_and_holds_no_credentials() -> None:
    environment = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
    }
    writer = RemoteWriter.from_environment("bucket", "prefix/", environment)
    assert dict(writer.variables) == {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_DEFAULT_REGION": "eu-central-1"}
