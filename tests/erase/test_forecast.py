from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.erase.copies import CopyKind
from coldstream.erase.forecast import forecast_erasure
from coldstream.erase.report import ErasureForecast
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import HeldError
from coldstream.manifest.entry import Encoding, Hold
from coldstream.manifest.groups import Group
from coldstream.manifest.holding import plan_hold
from coldstream.units import Offset
from tests.erase.archived import KEYS, MessageArchive, body_of
from tests.erase.samples import between
from tests.erase.stores import Erasing
from tests.support.archive import NOW
from tests.support.compacting import Calls
from tests.support.compaction import Compaction


@pytest.fixture
def erasing() -> Erasing:
    """Three fragments, the middle one compressed."""
    archive = MessageArchive()
    for encoding in (Encoding.IDENTITY, Encoding.ZSTD_SEEKABLE, Encoding.IDENTITY):
        archive.add(4, encoding=encoding)
    return Erasing(archive)


def forecast(erasing: Erasing, selection: Selection) -> ErasureForecast:
    """Forecast, and make sure that nothing changed."""
    before = dict(erasing.archive.objects.objects), erasing.archive.log
    written = []

    def on_call(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  as it is called
        written.append(name) if name in {"apply", "put", "put_new", "delete", "create_upload"} else None

    calls = Calls(erasing.archive.table, erasing.archive.objects, on_call)
    found = forecast_erasure(erasing.stores(calls.table, calls.objects), erasing.archive.stream, selection)
    assert not written
    assert (dict(erasing.archive.objects.objects), erasing.archive.log) == before
    return found


@pytest.mark.parametrize("selection", [between(0, 30), between(23, 25), Selection(key=ValueDigest.of("user-3"))])
def test_it_foretells_what_the_erasure_then_does(erasing: Erasing, selection: Selection) -> None:
    expected = forecast(erasing, selection)
    objects = {entry.key: entry.object_bytes for entry in erasing.archive.log}
    report = erasing.erase(selection)
    assert (expected.messages, expected.fragments) == (report.messages, report.fragments)
    assert (expected.fragments_read, expected.read_bytes) == (report.fragments_read, report.read_bytes)
    gone = objects.keys() - {entry.key for entry in erasing.archive.log}
    assert expected.rewritten_bytes == sum(objects[key] for key in gone)
    assert expected.selection.to_text() == report.erasure.where


def test_it_counts_the_requests_to_the_bucket(erasing: Erasing) -> None:
    expected = forecast(erasing, between(0, 24))
    sent = []

    def on_call(_: int, name: str, is_done: bool) -> None:  # noqa: FBT001  as it is called
        if not is_done and name in {"get_range", "get_whole", "info", "put_new", "put"}:
            sent.append(name)

    calls = Calls(erasing.archive.table, erasing.archive.objects, on_call)
    erasing.erase(between(0, 24), stores=erasing.stores(calls.table, calls.objects))
    # The notes of its beginning and its end are not of a fragment.
    assert len(sent) - 2 == expected.requests
    assert 0 < expected.cost_usd < 0.001


def test_it_tells_copies_and_goes_on(erasing: Erasing) -> None:
    erasing.archive.objects.objects[KEYS.staged(erasing.archive.stream.incarnation, Offset(0), Offset(24))] = body_of(3)
    found = forecast(erasing, between(0, 24))
    assert [one.kind for one in found.copies.copies] == [CopyKind.STAGED]
    assert found.messages == 24


def test_what_is_held_is_refused_as_the_erasure_would_be(erasing: Erasing) -> None:
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    erasing.archive.table.apply(plan_hold(head, Hold("case-17", Offset(0), None, "case 17", "bob", NOW)))
    with pytest.raises(HeldError):
        forecast(erasing, between(0, 24))


def test_an_unfinished_compaction_is_not_counted_twice(erasing: Erasing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.manifest.compaction.FIRST_REMOVALS", 2)
    archive = MessageArchive()
    for _ in range(6):
        archive.add(4)
    erasing = replace(erasing, archive=archive)
    compaction, group = Compaction(archive), Group(archive.log)
    next(compaction.replace(group, compaction.store(group, Encoding.IDENTITY)))
    head = archive.table.head(archive.stream.incarnation)
    assert head is not None
    assert head.compacting is not None
    assert forecast(erasing, between(0, 100)).messages == sum(offset < 100 for offset in archive.published)
