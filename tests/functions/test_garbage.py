"""The garbage function, as its schedule calls it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import DeleteFailure, DeleteReport
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs, now_ms
from tests.cli.test_garbage import DAYS_MS, Litter
from tests.functions.test_upload import Context
from tests.store.samples import ORDERS

APP = Path(__file__).parents[2] / "functions/garbage/app.py"
EVENT: dict[str, Any] = {}


@pytest.fixture
def app(table_name: str, s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_PREFIX", "here/")
    monkeypatch.setattr(S3Objects, "clock", property(lambda _: lambda: TimestampMs(now_ms() + DAYS_MS)))
    spec = importlib.util.spec_from_file_location("garbage_app", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def litter(dynamo_table: DynamoTable, s3_objects: S3Objects) -> Litter:
    return Litter(dynamo_table, s3_objects)


@pytest.mark.parametrize("setting", [None, "report", "off", "Delete"])
def test_it_only_reports_unless_it_is_told_to_delete(
    app: ModuleType,
    litter: Litter,
    setting: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("COLDSTREAM_GARBAGE", raising=False)
    if setting is not None:
        monkeypatch.setenv("COLDSTREAM_GARBAGE", setting)
    report = app.lambda_handler(EVENT, Context())
    json.dumps(report)  # as Lambda does
    assert (report["delete"], report["deletions"]["objects"]) == (False, 0)
    assert litter.garbage in litter.stored
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (metrics["GarbageObjects"], metrics["GarbageBytes"], metrics["UnknownObjects"]) == ([1], [5], [1])


def test_it_deletes_when_it_is_told_to(
    app: ModuleType, litter: Litter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLDSTREAM_GARBAGE", "delete")
    app.lambda_handler(EVENT, Context())
    assert without_notes(litter.stored) == {litter.live, litter.unknown}
    metrics = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (metrics["GarbageDeleted"], metrics["GarbageNotDeleted"]) == ([1], [0])


def test_it_stops_when_its_time_is_up_and_the_next_run_goes_on(
    app: ModuleType, litter: Litter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLDSTREAM_GARBAGE", "delete")

    class Hurried(Context):
        def __init__(self, looks: int) -> None:
            self.left = looks

        def get_remaining_time_in_millis(self) -> int:
            self.left -= 1
            return 600_000 if self.left >= 0 else 1000

    report = app.lambda_handler(EVENT, Hurried(2))
    assert (report["is_complete"], "GarbageObjects" in capsys.readouterr().out) == (False, False)
    litter.put(Keys("here/").fragment(ORDERS.incarnation, Offset(700)))
    report = app.lambda_handler(EVENT, Context())
    assert report["is_complete"]
    assert report["deletions"]["objects"] == 2
    assert without_notes(litter.stored) == {litter.live, litter.unknown}


def test_a_deletion_that_is_refused_fails_the_run_so_that_the_alarm_rings(
    app: ModuleType, litter: Litter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_GARBAGE", "delete")
    refused = DeleteReport(failed=(DeleteFailure(litter.garbage, "AccessDenied"),))
    monkeypatch.setattr(S3Objects, "delete_many", lambda *_, **__: refused)
    with pytest.raises(UnavailableError, match="AccessDenied"):
        app.lambda_handler(EVENT, Context())


def without_notes(keys: set[str]) -> set[str]:
    """Leave out the fences, which the bucket is told of before anything is deleted."""
    return {key for key in keys if "/control/" not in key}
