"""The erase function, as its schedule calls it, on an archive in memory."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from coldstream.erase.resume import LEAST_AGE_MS
from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import CorruptionError
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.store.settings import Settings
from tests.erase.archived import MessageArchive, user_of
from tests.erase.samples import between
from tests.erase.stores import Erasing
from tests.support.functions import FunctionContext, load_function


@pytest.fixture
def erasing() -> Erasing:
    """A stream of three fragments."""
    archive = MessageArchive()
    for _ in range(3):
        archive.add(4)
    return Erasing(archive)


@pytest.fixture
def app(erasing: Erasing, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_function("erase")
    monkeypatch.setattr(module, "stores", erasing.stores)
    monkeypatch.setattr(module, "settings", lambda: Settings("memory", "memory"))
    return module


def begun(erasing: Erasing, selection: Selection) -> None:
    """Begin an erasure, an hour ago."""
    Eraser(erasing.stores()).begin(erasing.archive.stream, selection, reason="", by="alice")
    erasing.clock.at += LEAST_AGE_MS


def called(app: ModuleType, remaining_ms: int = 300_000) -> dict[str, Any]:
    found: dict[str, Any] = app.lambda_handler({}, FunctionContext("erase", remaining_ms))
    return found


def test_it_goes_on_with_what_was_interrupted(
    erasing: Erasing, app: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(erasing, Selection(key=ValueDigest.of("user-3")))
    taken = {offset for offset in erasing.archive.published if user_of(offset) == "user-3"}
    assert called(app) == {"done": 1, "unfinished": 0, "messages": len(taken)}
    assert {offset for offset, raw in erasing.archive.read().items() if raw == ERASED_MESSAGE} == taken
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["MessagesErased"] for line in lines if "MessagesErased" in line] == [[float(len(taken))]]
    assert called(app) == {"done": 0, "unfinished": 0, "messages": 0}


def test_it_begins_no_fragment_when_time_is_up(erasing: Erasing, app: ModuleType) -> None:
    begun(erasing, between(0, 72))
    assert called(app, remaining_ms=1000) == {"done": 0, "unfinished": 0, "messages": 0}
    assert ERASED_MESSAGE not in erasing.archive.read().values()


def test_what_needs_a_function_of_a_user_is_told(
    erasing: Erasing, app: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    begun(erasing, Selection(function="rules:old").with_predicate(lambda _: True))
    assert called(app) == {"done": 0, "unfinished": 1, "messages": 0}
    assert "--resume --where" in caplog.text


def test_an_error_is_raised_after_all_were_tried(erasing: Erasing, app: ModuleType) -> None:
    begun(erasing, between(0, 24))
    begun(erasing, between(24, 48))
    key = erasing.archive.log[0].key
    erasing.archive.objects.objects[key] = erasing.archive.objects.objects[key][:-1]
    with pytest.raises(CorruptionError):
        called(app)
    erased = {offset for offset, raw in erasing.archive.read_from(24).items() if raw == ERASED_MESSAGE}
    assert erased == set(range(24, 48)) & erasing.archive.published.keys()
