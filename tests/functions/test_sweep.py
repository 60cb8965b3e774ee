"""The sweep function, as its schedule calls it, on an archive in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.sweep import due_tombstones
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.manifest.fence import plan_discard
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import DeleteReport
from coldstream.units import TimestampMs
from tests.support.functions import FunctionContext, load_function
from tests.support.lifecycle import INCARNATION, Scene


@pytest.fixture
def scene() -> Scene:
    """A stream of which two fragments were removed, and are due."""
    made = Scene(object_lock=True)
    remove_prefix(made.stores, INCARNATION, up_to_offset(made.offset(2)), why="", by="")
    made.wait_for_sweep()
    return made


@pytest.fixture
def app(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_function("sweep")
    monkeypatch.setattr(module, "stores", lambda: scene.stores)
    monkeypatch.setenv("COLDSTREAM_SWEEP", "delete")
    return module


def called(app: ModuleType, remaining_ms: int = 300_000) -> dict[str, Any]:
    found: dict[str, Any] = app.lambda_handler({}, FunctionContext("sweep", remaining_ms))
    return found


def test_it_deletes_what_is_due(scene: Scene, app: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(app)["objects"] == 2
    assert scene.live == {entry.key for entry in scene.log}
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ObjectsDeleted"] for line in lines if "ObjectsDeleted" in line] == [[2.0]]
    assert called(app)["objects"] == 0


@pytest.mark.parametrize("setting", ["", "off", "true"])
def test_without_its_setting_it_only_reports(
    scene: Scene, app: ModuleType, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_SWEEP", setting)
    assert called(app)["objects"] == 2
    assert len(scene.live) == 5


@pytest.mark.parametrize("setting", ["delete", "report"])
def test_it_begins_nothing_when_time_is_up(
    scene: Scene, app: ModuleType, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_SWEEP", setting)
    assert called(app, remaining_ms=1000)["objects"] == 0
    assert len(scene.live) == 5


def test_what_the_store_refuses_is_logged_and_counted_and_rings_the_alarm(
    scene: Scene, app: ModuleType, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    key = min(scene.live)
    (one,) = (one for one in due_tombstones(scene.archive.table, INCARNATION, scene.clock.now) if one.key == key)
    assert scene.head is not None
    # As erasure writes it: only then versions go, which is what a legal hold keeps.
    scene.archive.table.apply(plan_discard(scene.head, [replace(one, all_versions=True)], 0, scene.clock.now))
    scene.archive.objects.put_legal_hold(key, True)
    with pytest.raises(UnavailableError, match=key):
        called(app)
    refused = [vars(record) for record in caplog.records if record.message == "not deleted"]
    assert [one["key"] for one in refused] == [key]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ObjectsRefused"] for line in lines if "ObjectsRefused" in line] == [[1.0]]
    assert [line["ObjectsDeleted"] for line in lines if "ObjectsDeleted" in line] == [[1.0]]


def test_it_purges_deleted_streams(scene: Scene, app: ModuleType) -> None:
    delete_stream(scene.stores, INCARNATION, grace_ms=0, by="me")
    # Entries, their objects, the versions of those, the delete markers, and a look that finds nothing.
    for _ in range(5):
        called(app)
        scene.wait_for_purge()
    head = scene.head
    assert head is not None
    assert head.purged_at is not None
    assert scene.live == set()


def test_what_failed_in_a_stream_rings_the_alarm(scene: Scene, app: ModuleType) -> None:
    class Silent(MemoryObjects):
        def delete_many(self, keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
            raise UnavailableError(f"no answer of {keys[0]}")

    scene.archive.objects = going_on(scene, Silent)
    with pytest.raises(UnavailableError):
        called(app)


def going_on(scene: Scene, kind: type[MemoryObjects]) -> MemoryObjects:
    """Return objects of another kind, with what there is."""
    made = kind(clock=scene.clock)
    for key, data in scene.archive.objects.objects.items():
        made.put(key, data)
    return made
