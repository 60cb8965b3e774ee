"""`coldstream garbage` on an archive of the emulated AWS."""

from __future__ import annotations

import io
from dataclasses import replace
from zlib import crc32

import pytest

from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs, now_ms
from tests.cli.conftest import Cli
from tests.store.samples import ORDERS, commit, entry

KEYS = Keys("here/")
DAYS_MS = 2 * 24 * 3600 * 1000


class Litter:
    """One archived fragment, one that nothing names, and an object of nobody's; all written two days ago."""

    def __init__(self, table: DynamoTable, objects: S3Objects) -> None:
        self._objects = objects
        self.live = self.put(KEYS.fragment(ORDERS.incarnation, Offset(0)))
        self.garbage = self.put(KEYS.fragment(ORDERS.incarnation, Offset(0), 1))
        self.unknown = self.put("here/a b+c%20d")
        commit(table, replace(entry(0, 10), key=self.live))

    def put(self, key: str) -> str:
        self._objects.put_new(key, io.BytesIO(b"bytes"), size_bytes=5, crc32=crc32(b"bytes"))
        return key

    @property
    def stored(self) -> set[str]:
        """All but the fence's control object, which a deletion leaves."""
        return {key for key in self._objects.keys("") if "/control/" not in key}


@pytest.fixture
def litter(
    table_name: str, dynamo_table: DynamoTable, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> Litter:
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.setenv("COLDSTREAM_PREFIX", "here/")
    monkeypatch.setattr(S3Objects, "clock", property(lambda _: lambda: TimestampMs(now_ms() + DAYS_MS)))
    return Litter(dynamo_table, s3_objects)


def test_a_report_names_what_would_go_and_changes_nothing(litter: Litter, cli: Cli) -> None:
    before = litter.stored
    done = cli("garbage")
    assert done.code == 0
    assert done.out.splitlines()[0].split()[:3] == ["kind", "is", "objects"]
    assert "1 object of 5 B" in done.err
    assert f"garbage: {litter.garbage}" in done.err
    assert f"unknown: {litter.unknown}" in done.err
    assert litter.stored == before


def test_garbage_is_deleted_when_it_is_said(litter: Litter, cli: Cli) -> None:
    done = cli("garbage", "--delete", "--yes")
    assert done.code == 0
    assert "1 object of 5 B deleted" in done.err
    assert litter.stored == {litter.live, litter.unknown}


def test_a_dry_run_deletes_nothing_whatever_else_is_said(litter: Litter, cli: Cli) -> None:
    (report,) = cli("garbage", "--delete", "--dry-run", "--yes", "-o", "json").json
    found = {(one["kind"], one["state"]): one["objects"] for one in report["findings"]}
    assert found["fragment of a later generation", "garbage"] == 1
    assert (report["delete"], report["is_complete"], report["deletions"]["objects"]) == (False, True, 0)
    assert litter.garbage in litter.stored


def test_nothing_is_deleted_without_a_word(litter: Litter, cli: Cli) -> None:
    done = cli("garbage", "--delete")
    assert done.code == 2
    assert "--yes" in done.err
    assert litter.garbage in litter.stored


def test_a_run_that_stops_at_a_limit_is_resumed(litter: Litter, cli: Cli) -> None:
    done = cli("garbage", "--delete", "--yes", "--limit", "1")
    assert (done.code, "--resume goes on" in done.err) == (0, True)
    assert cli("garbage", "--delete", "--yes", "--resume").code == 0
    assert litter.stored == {litter.live, litter.unknown}


@pytest.mark.parametrize(("option", "value"), [("--older-than", "59min"), ("--older-than", "soon"), ("--limit", "0")])
def test_a_senseless_option_is_named(litter: Litter, cli: Cli, option: str, value: str) -> None:
    done = cli("garbage", option, value)
    assert done.code == 2
    assert option in done.err


def test_objects_that_are_young_by_the_clock_of_aws_stay(
    litter: Litter, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Objects, "clock", property(lambda _: now_ms))
    assert cli("garbage", "--delete", "--yes").code == 0
    assert litter.garbage in litter.stored
