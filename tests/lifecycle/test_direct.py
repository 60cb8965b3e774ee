"""Direct streams end, and lose their beginning, as any stream does; who appends to them stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coldstream.errors import HeldError, LostRaceError, StreamExistsError
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.purge import PurgeState
from coldstream.lifecycle.tend import tend
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.appending import plan_trim, tail_of
from coldstream.manifest.change import Change
from coldstream.manifest.stream import Incarnation
from coldstream.rebuild.run import Rebuilder
from coldstream.store.direct_names import DirectName, add_name, find_name, remove_name
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Epoch, Offset
from tests.support.archive import NOW, STREAM
from tests.support.changes import change_to
from tests.support.lifecycle import DAY_MS, GRACE_MS, INCARNATION, KEYS, Scene

APPENDER = Appender(Epoch(2), (Opening(Epoch(2), WalPlace(WalKind.S3, "host-1", 1)),), properties=(("owner", "x"),))
LATER = replace(STREAM, incarnation=Incarnation("__orders_1763700000000000009"))


def direct() -> Scene:
    """Return an archive whose stream is direct, and open; the bucket knows."""
    scene = Scene()
    head = scene.head
    assert head is not None
    head = replace(head, revision=head.revision + 1, appender=APPENDER)
    scene.archive.table.apply(change_to(head))
    add_name(scene.archive.table, DirectName.of(head))
    scene.stores.control.write_stream(STREAM)
    scene.stores.control.write_opening(STREAM, APPENDER.openings[0])
    scene.stores.control.write_direct(head)
    return scene


def name(scene: Scene) -> DirectName | None:
    return find_name(scene.archive.table, STREAM.vhost, STREAM.name)


def delete(scene: Scene) -> None:
    delete_stream(scene.stores, INCARNATION, grace_ms=GRACE_MS, by="me")


def undelete(scene: Scene) -> None:
    undelete_stream(scene.stores, INCARNATION, by="me")


def appender(scene: Scene) -> Appender | None:
    return None if scene.head is None else scene.head.appender


def test_a_deletion_takes_the_name_and_an_undeletion_gives_it_back() -> None:
    scene = direct()
    known = name(scene)
    assert known is not None
    delete(scene)
    assert name(scene) is None
    undelete(scene)
    assert name(scene) == known
    assert appender(scene) == APPENDER


def test_a_deletion_that_comes_again_takes_the_name_that_the_first_one_left() -> None:
    scene = direct()
    delete(scene)
    add_name(scene.archive.table, DirectName(STREAM, properties=APPENDER.properties))  # it died before
    delete(scene)
    assert name(scene) is None


def test_a_deletion_leaves_the_name_of_a_later_stream() -> None:
    scene = direct()
    delete(scene)
    add_name(scene.archive.table, DirectName(LATER))
    delete(scene)
    assert name(scene) == DirectName(LATER)


def test_an_undeletion_is_refused_if_another_stream_has_the_name() -> None:
    scene = direct()
    delete(scene)
    add_name(scene.archive.table, DirectName(LATER))
    with pytest.raises(StreamExistsError, match="already a stream"):
        undelete(scene)
    assert scene.head is not None
    assert scene.head.is_deleted
    floor = scene.stores.control.latest_floor(INCARNATION)
    assert floor is not None
    assert floor.deleted_at is not None
    remove_name(scene.archive.table, LATER)
    undelete(scene)


def test_a_name_that_is_taken_while_the_stream_comes_back_is_told() -> None:
    scene = direct()
    delete(scene)
    apply = scene.archive.table.apply

    def taken(change: Change) -> None:
        remove_name(scene.archive.table, STREAM)
        add_name(scene.archive.table, DirectName(LATER))
        apply(change)

    scene.archive.table.apply = taken  # type: ignore[method-assign]
    with pytest.raises(StreamExistsError):
        undelete(scene)
    assert name(scene) == DirectName(LATER)


def test_a_held_direct_stream_keeps_its_name() -> None:
    scene = direct()
    put_hold(scene.stores, INCARNATION, first_offset=Offset(0), next_offset=None, reason="a lawsuit", by="me")
    with pytest.raises(HeldError):
        delete(scene)
    assert name(scene) is not None


def test_a_purged_direct_stream_leaves_nothing_but_what_fences_it() -> None:
    scene = direct()
    delete(scene)
    for _ in range(6):
        (report,) = tend(scene.stores, [STREAM])
        assert report.error is None
        if report.purge.state is PurgeState.PURGED:
            break
        scene.wait_for_purge()
    assert report.purge.state is PurgeState.PURGED
    assert [one.epoch for one in scene.stores.control.openings(INCARNATION)] == [2]
    assert appender(scene) == APPENDER


def truncated(scene: Scene) -> None:
    truncate(scene.stores, INCARNATION, up_to_offset(Offset(4)), why="", by="me")


def emptied(scene: Scene) -> None:
    truncate(scene.stores, INCARNATION, up_to_offset(Offset(1 << 40)), why="", by="me")


@pytest.mark.parametrize("remove", [truncated, emptied])
def test_what_is_removed_leaves_the_appender_and_the_tail(remove: Callable[[Scene], None]) -> None:
    scene = direct()
    assert scene.head is not None
    before = tail_of(scene.head)
    remove(scene)
    assert scene.head is not None
    assert scene.head.floor > 0
    assert (appender(scene), tail_of(scene.head)) == (APPENDER, before)
    table = MemoryTable()
    Rebuilder(table, scene.archive.objects, KEYS, lambda: NOW, DAY_MS).stream(INCARNATION)
    rebuilt = table.head(INCARNATION)
    assert rebuilt is not None
    assert (rebuilt.appender, tail_of(rebuilt), rebuilt.floor) == (APPENDER, before, scene.head.floor)


def test_a_trim_removes_nothing_by_itself_and_a_truncation_up_to_it_does() -> None:
    scene = direct()
    assert scene.head is not None
    change = plan_trim(scene.head, Epoch(2), Offset(5), NOW)
    assert change is not None
    scene.archive.table.apply(change)
    scene.stores.control.write_direct(change.head)
    count = len(scene.log)
    truncate(scene.stores, INCARNATION, up_to_offset(Offset(5)), why="trimmed", by="me")
    assert len(scene.log) == count - 2  # of two messages each: the third holds the offset
    found = appender(scene)
    assert found is not None
    assert found.start == 5


def test_lost_races_of_an_undeletion_leave_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = direct()
    delete(scene)
    monkeypatch.setattr("coldstream.store.races._pause", lambda *_: None, raising=False)
    apply, lost = scene.archive.table.apply, [True]

    def once(change: Change) -> None:
        if lost.pop() if lost else False:
            raise LostRaceError("another was first")
        apply(change)

    scene.archive.table.apply = once  # type: ignore[method-assign]
    undelete(scene)
    assert name(scene) is not None
