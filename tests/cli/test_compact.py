"""`coldstream compact` on an archive of the emulated AWS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from coldstream.manifest.entry import Encoding
from tests.cli.conftest import Cli
from tests.support.small_fragments import OTHERS, PREFIX, SmallFragments

HEADS = "vhost  stream  fragments  are now  size  is now  superseded  failed  deleted"


@pytest.fixture
def elsewhere(aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of an archive that is not there."""
    monkeypatch.setenv("COLDSTREAM_TABLE", "no-table")
    monkeypatch.setenv("COLDSTREAM_BUCKET", "no-bucket")


def test_a_dry_run_says_what_it_would_save_and_changes_nothing(archived: SmallFragments, cli: Cli) -> None:
    before = archived.log()
    done = cli("compact", "orders", "--dry-run")
    assert done.code == 0
    heads, row = done.out.splitlines()
    assert heads.split()[:3] == ["vhost", "stream", "fragments"]
    assert row.split()[:4] == ["/", "orders", str(len(before)), "1"]
    assert f"{len(before) - 1} objects fewer" in done.err
    assert "list prices" in done.err
    assert archived.log() == before


def test_a_dry_run_of_compression_is_called_an_estimate(archived: SmallFragments, cli: Cli) -> None:
    assert "about" in cli("compact", "orders", "--dry-run", "--encoding", "zstd-seekable").out
    (found,) = cli("compact", "--all", "--dry-run", "--encoding", "zstd-seekable", "-o", "json").json
    assert (found["dry_run"], found["is_estimate"], len(found["streams"])) == (True, True, 2)
    assert found["object_bytes_after"] < found["object_bytes"]
    assert found["cost_usd"] > 0


@pytest.mark.parametrize("encoding", list(Encoding))
def test_fragments_become_one_and_read_as_before(archived: SmallFragments, cli: Cli, encoding: Encoding) -> None:
    before = len(archived.log())
    assert before > 3
    (found,) = cli("compact", "orders", "--encoding", encoding, "-o", "json").json
    assert (found["dry_run"], found["failed"]) == (False, 0)
    assert (found["fragments"], found["fragments_after"]) == (before, 1)
    (entry,) = archived.log()
    assert entry.encoding is encoding
    assert entry.key.startswith(PREFIX)
    assert list(archived.read()) == archived.chunks
    assert len(archived.log(OTHERS)) > 1
    (again,) = cli("compact", "orders", "others", "--encoding", encoding, "--jobs", "1", "-o", "json").json
    assert [stream["fragments_after"] for stream in again["streams"]] == [0, 1]


def test_people_get_a_table(archived: SmallFragments, cli: Cli) -> None:
    done = cli("compact", "--all", "--target-size", "100kB", "--jobs", "4")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == HEADS.split()
    assert [line.split()[1] for line in lines[1:]] in (["orders", "others"], ["others", "orders"])
    assert "copied by S3" in done.err
    assert list(archived.read()) == archived.chunks


def test_what_is_young_is_left(archived: SmallFragments, cli: Cli) -> None:
    (found,) = cli("compact", "orders", "--older-than", "36500d", "-o", "json").json
    assert found["fragments"] == 0


def test_a_corrupt_fragment_is_named_and_the_exit_code_says_so(archived: SmallFragments, cli: Cli, s3: Any) -> None:
    entry = archived.corrupt(s3, 3)
    done = cli("compact", "--all", "--encoding", "zstd-seekable", "-o", "json")
    assert done.code == 5
    (found,) = done.json
    failures = [failure for stream in found["streams"] for failure in stream["failures"]]
    assert [failure["key"] for failure in failures] == [entry.key]
    assert failures[0]["position"] >= 0
    assert f"failed: offsets 0 on: BadCrcError: {entry.key} at byte" in done.err
    assert found["fragments_after"] == 1
    assert len(archived.log(OTHERS)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either name streams, or ask for all"),
        (("orders", "--all"), "either name streams, or ask for all"),
        (("orders", "others", "--incarnation", "x"), "--incarnation"),
        (("orders", "--older-than", "yesterday"), "--older-than: 'yesterday' is not a duration"),
        (("orders", "--older-than=-5m"), "--older-than"),
        (("orders", "--target-size", "8EiB"), "--target-size"),
        (("orders", "--target-size", "1"), "--target-size"),
        (("orders", "--encoding", "gzip"), "identity, zstd-seekable"),
        (("orders", "--level", "99"), "--level"),
        (("orders", "--jobs", "0"), "--jobs"),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_what_cannot_be_asked_is_refused(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    done = cli("compact", *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_stream_that_is_not_archived_is_not_found(archived: SmallFragments, cli: Cli) -> None:
    assert cli("compact", "unknown\x1b[2J").code == 3
    assert cli("compact", "orders", "--vhost", "other").code == 3


def test_without_settings_it_says_which(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSTREAM_BUCKET", raising=False)
    done = cli("compact", "orders")
    assert done.code == 2
    assert "COLDSTREAM_BUCKET" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_next_run_goes_on(archived: SmallFragments, cli: Cli, number: signal.Signals) -> None:
    code = (
        "import os, sys, time, coldstream.compact.task as task, coldstream.cli.main as main\n"
        "def slow(*_, should_stop, **__):\n"
        "    print('begun', flush=True)\n"
        "    while not should_stop(): time.sleep(0.01)\n"
        "    return task.GroupFailure.of(task.ColdstreamError('stopped'))\n"
        "task.write_task = slow\n"
        "main.main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "compact", "--all"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert cli("compact", "--all").code == 0
    assert len(archived.log()) == 1
    assert list(archived.read()) == archived.chunks


@pytest.mark.parametrize("dry_run", [("--dry-run",), ()])
def test_a_stream_that_is_too_young_as_a_whole_is_reported(
    archived: SmallFragments, cli: Cli, dry_run: tuple[str, ...]
) -> None:
    before = archived.log()
    done = cli("compact", "orders", "--older-than", "30000d", *dry_run)
    assert done.code == 0
    assert (
        f"stream 'orders' in vhost '/': none of its fragments ({len(before)}) is older than --older-than 30000d"
        in done.err
    )
    assert archived.log() == before
    assert "is older than" not in cli("compact", "orders", "--dry-run").err
