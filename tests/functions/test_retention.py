"""The retention function, as its schedule calls it, on an archive in memory."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.lifecycle.policies import set_policy
from coldstream.manifest.change import Change, DeleteEntry
from coldstream.manifest.policy import Policy
from coldstream.store.memory.table import MemoryTable
from tests.support.functions import FunctionContext, load_function
from tests.support.lifecycle import Scene


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    set_policy(made.stores, Policy("all", "*/*", max_age_ms=made.clock.now - made.time_of(2)))
    return made


@pytest.fixture
def app(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_function("retention")
    monkeypatch.setattr(module, "stores", lambda: scene.stores)
    monkeypatch.delenv("COLDSTREAM_RETENTION", raising=False)
    return module


def called(app: ModuleType, remaining_ms: int = 300_000) -> dict[str, Any]:
    found: dict[str, Any] = app.lambda_handler({}, FunctionContext("retention", remaining_ms))
    return found


@pytest.mark.parametrize("setting", ["", "report", "true"])
def test_it_only_reports_unless_its_setting_says_delete(
    scene: Scene, app: ModuleType, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_RETENTION", setting)
    summary = called(app)
    assert (summary["dry_run"], summary["objects"]) == (True, 2)
    assert len(scene.log) == 5


def test_it_removes_what_the_policies_let_go(
    scene: Scene,
    app: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("COLDSTREAM_RETENTION", "delete")
    summary = called(app)
    assert (summary["dry_run"], summary["objects"]) == (False, 2)
    assert len(scene.log) == 3
    (removed,) = [vars(record) for record in caplog.records if record.message == "removed"]
    assert (removed["stream"], removed["objects"], removed["first_offset"]) == ("orders", 2, 4)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["FragmentsRemoved"] for line in lines if "FragmentsRemoved" in line] == [[2.0]]


def test_it_begins_nothing_when_time_is_up(scene: Scene, app: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSTREAM_RETENTION", "delete")
    assert called(app, remaining_ms=1000)["objects"] == 0
    assert len(scene.log) == 5


def test_what_failed_in_a_stream_rings_the_alarm(
    scene: Scene, app: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(MemoryTable):
        def apply(self, change: Change) -> None:
            if change.of(DeleteEntry):
                raise UnavailableError("no answer")
            super().apply(change)

    policies = scene.archive.table.policies()
    scene.archive.table = Silent()
    scene.archive.table.put_policy(policies[0])
    scene.archive.objects.objects.clear()
    for _ in range(3):
        scene.add()
    monkeypatch.setenv("COLDSTREAM_RETENTION", "delete")
    with pytest.raises(UnavailableError):
        called(app)
