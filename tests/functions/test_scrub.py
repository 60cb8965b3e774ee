"""The scrub function, as the schedule calls it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coldstream.garbage.kinds import DAY_MS
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import TimestampMs, now_ms
from tests.support.small_fragments import ORDERS, OTHERS, PREFIX, SmallFragments

APP = Path(__file__).parents[2] / "functions/scrub/app.py"


@dataclass
class Context:
    left_ms: int = 300_000
    function_name = "scrub"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:scrub"
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


@pytest.fixture
def archived(dynamo_table: DynamoTable, s3_objects: S3Objects, tmp_path: Path) -> SmallFragments:
    made = SmallFragments(dynamo_table, s3_objects, tmp_path)
    for stream in (ORDERS, OTHERS):
        ControlObjects(s3_objects, Keys(PREFIX)).write_stream(stream)
    return made


@pytest.fixture
def app(archived: SmallFragments, table_name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name, value in archived.variables(table_name).items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("scrub_app", APP)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_damage_rings_the_alarm_and_is_counted_by_its_kind(
    app: ModuleType, archived: SmallFragments, s3: Any, capsys: Any, caplog: Any
) -> None:
    s3.delete_object(Bucket=archived.objects.bucket, Key=archived.log()[1].key)
    answer = app.lambda_handler({}, Context())
    assert (answer["complete"], answer["pass"]["damages"]) == (True, {"ObjectMissing": 1})
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert told.damage == "ObjectMissing"
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [one["Damages"] for one in metrics if "Damages" in one] == [[1.0]]
    assert [(one["Damage"], one["DamagesFound"]) for one in metrics if "DamagesFound" in one] == [
        ("ObjectMissing", [1.0])
    ]


@pytest.mark.parametrize("sweeps", ["off", "delete"])
def test_what_waits_for_a_sweep_rings_the_alarm_only_if_the_sweep_is_on(
    app: ModuleType,
    archived: SmallFragments,
    sweeps: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stores = LifecycleStores.open(archived.table, archived.objects, Keys(PREFIX), grace_ms=0)
    remove_prefix(stores, ORDERS.incarnation, up_to_offset(archived.log()[1].first_offset), why="", by="")
    monkeypatch.setenv("COLDSTREAM_SWEEP", sweeps)
    monkeypatch.setattr(S3Objects, "clock", property(lambda _: lambda: TimestampMs(now_ms() + 30 * DAY_MS)))
    assert app.lambda_handler({}, Context())["pass"]["damages"] == {"TombstoneOverdue": 1}
    metrics = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [one["Damages"] for one in metrics if "Damages" in one] == [[float(sweeps == "delete")]]


def test_it_stops_before_its_time_is_up_and_goes_on_the_next_time(app: ModuleType, archived: SmallFragments) -> None:
    assert app.lambda_handler({}, Context(left_ms=1000))["complete"] is False
    answer = app.lambda_handler({}, Context())
    assert (answer["complete"], answer["pass"]["damages"]) == (True, {})
