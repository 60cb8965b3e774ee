"""Deletion, undeletion and purge of a whole stream."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from zlib import crc32

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.archive.missing import record_missing
from coldstream.errors import (
    LostRaceError,
    NotDeletedError,
    OutcomeUnknownError,
    PurgedError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.lifecycle.deletion import DEFAULT_GRACE_MS, delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.purge import PurgeState
from coldstream.lifecycle.retention import run_retention
from coldstream.lifecycle.stores import LONGEST_UPLOAD_MS
from coldstream.lifecycle.tend import TendReport, foretell_tending, tend
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.change import Change
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.deletion import plan_undelete
from coldstream.manifest.entry import JournalKind, Loss, Quarantine
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import Incarnation
from coldstream.rebuild.compare import differences
from coldstream.rebuild.run import Rebuilder
from coldstream.store.keys import Keys
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import BucketCapabilities, DeleteFailure
from coldstream.store.span_object import LoggedRun, span_object
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, STREAM, steady
from tests.support.compacting import Calls, Killed
from tests.support.lifecycle import DAY_MS, GRACE_MS, INCARNATION, KEYS, Scene


def delete(scene: Scene, grace_ms: int = DEFAULT_GRACE_MS) -> None:
    delete_stream(scene.stores, INCARNATION, grace_ms=grace_ms, by="me")


def tended(scene: Scene) -> TendReport:
    """Let the sweep function run, and return what it did."""
    (report,) = tend(scene.stores, [STREAM])
    assert report.error is None
    return report


def put(scene: Scene, key: str, data: bytes = b"left behind") -> None:
    scene.archive.objects.put_new(key, io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))


def purge(scene: Scene) -> None:
    """Let the sweep function run until the stream is purged."""
    for _ in range(6):
        if tended(scene).purge.state is PurgeState.PURGED:
            return
        scene.wait_for_purge()
    raise AssertionError("it never ends")


def test_a_deleted_stream_is_marked_and_takes_nothing() -> None:
    scene = Scene()
    log = scene.log
    entry = scene.archive.put(10, steady(1, NOW))
    delete(scene)
    head = scene.head
    assert head is not None
    assert (head.deleted_at, head.purge_at) == (NOW, NOW + 7 * DAY_MS)
    assert scene.log == log
    with pytest.raises(StreamDeletedError):
        commit_fragment(scene.archive.table, STREAM, entry, lambda: NOW)
    with pytest.raises(StreamDeletedError):
        truncate(scene.stores, INCARNATION, up_to_offset(Offset(4)), why="", by="")
    (note,) = scene.stores.control.floors(INCARNATION)
    assert note.deleted_at == NOW


def test_deleting_it_again_changes_nothing() -> None:
    scene = Scene()
    delete(scene)
    head = scene.head
    scene.clock.pass_ms(1000)
    delete(scene, grace_ms=0)
    assert scene.head == head


def test_an_undeleted_stream_is_as_it_was() -> None:
    scene = Scene()
    log = scene.log
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS - 1)
    assert tended(scene).purge.state is PurgeState.WAITING
    undelete_stream(scene.stores, INCARNATION, by="me")
    head = scene.head
    assert head is not None
    assert (head.is_deleted, head.purge_at) == (False, None)
    assert scene.log == log
    scene.clock.pass_ms(100 * DAY_MS)
    assert tended(scene).purge.state is PurgeState.NONE
    assert scene.live == {entry.key for entry in log}
    notes = sorted(scene.stores.control.floors(INCARNATION), key=lambda note: note.revision)
    assert [(note.deleted_at, note.undeletion) for note in notes] == [(NOW, False), (None, True), (None, False)]


def test_what_is_not_deleted_or_not_there_cannot_be_undeleted() -> None:
    with pytest.raises(NotDeletedError):
        undelete_stream(Scene().stores, INCARNATION, by="me")
    with pytest.raises(StreamNotFoundError):
        undelete_stream(Scene(fragments=0).stores, INCARNATION, by="me")
    with pytest.raises(StreamNotFoundError):
        delete(Scene(fragments=0))


def test_an_undeletion_that_died_before_its_note_is_noted_when_it_is_asked_for_again() -> None:
    scene = Scene()
    delete(scene)
    deleted = scene.head
    assert deleted is not None
    scene.archive.table.apply(plan_undelete(deleted, NOW, "me"))
    scene.stores.control.write_floor(deleted)  # by the process that deleted it, which slept before its note
    with pytest.raises(NotDeletedError):
        undelete_stream(scene.stores, INCARNATION, by="me")
    note = scene.stores.control.latest_floor(INCARNATION)
    assert note is not None
    assert note.deleted_at is None


def test_once_the_purge_has_begun_nothing_brings_it_back() -> None:
    scene = Scene()
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    report = tended(scene)
    assert (report.purge.state, report.purge.removal.fragments) == (PurgeState.RUNNING, 5)
    with pytest.raises(PurgedError, match="for good"):
        undelete_stream(scene.stores, INCARNATION, by="me")


def test_a_purge_of_a_stream_without_fragments_cannot_be_undone_either() -> None:
    scene = Scene()
    truncate(scene.stores, INCARNATION, up_to_offset(Offset(1000)), why="", by="")
    delete(scene, grace_ms=0)
    tended(scene)
    with pytest.raises(PurgedError):
        undelete_stream(scene.stores, INCARNATION, by="me")
    purge(scene)


def test_objects_outlive_the_last_url_that_was_signed_before_the_deletion() -> None:
    scene = Scene()
    delete(scene, grace_ms=0)
    assert tended(scene).swept.objects == 0
    scene.clock.pass_ms(GRACE_MS - 1)
    assert tended(scene).swept.objects == 0
    scene.clock.pass_ms(1)
    assert tended(scene).swept.objects == 5


def test_after_a_long_grace_objects_go_in_the_run_that_begins_the_purge() -> None:
    scene = Scene()
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    assert tended(scene).swept.objects == 5


@pytest.mark.parametrize("told", [True, None])
def test_nothing_is_left_of_a_purged_stream_but_its_head_and_the_notes(
    monkeypatch: pytest.MonkeyPatch, *, told: bool | None
) -> None:
    scene = Scene(versioned=True)
    monkeypatch.setattr(scene.archive.objects, "capabilities", lambda: BucketCapabilities(versioned=told))
    table = scene.archive.table
    table.bind_cluster(STREAM.vhost, STREAM.name, Cluster("north"))
    quarantined = KEYS.quarantined(INCARNATION, Offset(20), "abc")
    left = [
        KEYS.staged(INCARNATION, Offset(10), Offset(12)),
        Keys(cluster=Cluster("north")).staged(INCARNATION, Offset(12), Offset(14)),
        Keys(cluster=Cluster("stranger")).staged(INCARNATION, Offset(14), Offset(16)),
        quarantined,
        f"{quarantined}.json",
        KEYS.fragment(INCARNATION, Offset(10), 3),
        KEYS.fragment(INCARNATION, Offset(10)),
    ]
    for key in left:
        put(scene, key)
    scene.archive.objects.delete(left[0])  # its version stays, as of every staged copy that was dealt with
    scene.archive.objects.create_upload(KEYS.fragment(INCARNATION, Offset(12)))
    loss = Loss(Offset(30), Offset(40), "gone, said alice", NOW)
    scene.stores.control.write_loss(INCARNATION, loss)
    record_missing(table, STREAM, loss)
    record_missing(table, STREAM, Quarantine(Offset(20), Offset(30), "bad", NOW, quarantined, '"abc"'))
    others = KEYS.fragment(Incarnation("__others_1763700000000000000"), Offset(0))
    for foreign in (others, f"{KEYS.fragments(INCARNATION)}notes.txt"):
        put(scene, foreign)
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    purge(scene)
    head = scene.head
    assert head is not None
    assert (head.purged_at, head.fragments, head.losses, head.quarantined) == (scene.clock.now, 0, 0, 0)
    assert list(table.missing(INCARNATION)) == []
    versions = {version.key for version in scene.archive.objects.versions("") if "/control/" not in version.key}
    assert versions == {others, f"{KEYS.fragments(INCARNATION)}notes.txt"}
    assert scene.archive.objects.uploads_under("") == ()
    assert table.incarnation_of(STREAM.vhost, STREAM.name) == INCARNATION
    notes = sorted(scene.stores.control.floors(INCARNATION), key=lambda note: note.revision)
    assert notes[-1].purged_at == head.purged_at
    assert [one.key for one in scene.archive.objects.versions(KEYS.losses(INCARNATION))] == []
    kinds = [event.kind for event in table.journal(INCARNATION)]
    assert kinds[-1] is JournalKind.STREAM_PURGED
    assert tended(scene).purge.state is PurgeState.PURGED


def test_what_is_young_waits_for_a_later_run() -> None:
    scene = Scene()
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    key = KEYS.fragment(INCARNATION, Offset(10), 1)
    put(scene, key)
    report = tended(scene)
    assert (report.purge.young, report.purge.leftovers, report.purge.state) == (1, 0, PurgeState.RUNNING)
    scene.clock.pass_ms(LONGEST_UPLOAD_MS - 1)
    assert key in scene.live
    tended(scene)
    assert key in scene.live
    scene.wait_for_purge()
    assert tended(scene).purge.leftovers == 1
    assert scene.live == set()
    assert tended(scene).purge.state is PurgeState.PURGED


def test_it_is_not_purged_before_an_upload_that_was_under_way_has_ended() -> None:
    scene = Scene()
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    tended(scene)
    scene.clock.pass_ms(LONGEST_UPLOAD_MS - 1)
    assert tended(scene).purge.state is PurgeState.RUNNING
    scene.clock.pass_ms(1)
    assert tended(scene).purge.state is PurgeState.PURGED


@pytest.mark.parametrize("versioned", [False, True])
def test_a_purge_waits_for_recovery_logs_and_for_versions_of_their_objects(*, versioned: bool) -> None:
    scene = Scene(versioned=versioned)
    run = LoggedRun(STREAM, Offset(1000), Offset(1001), b"a chunk")
    key, another = KEYS.span("node-1", TimestampMs(1)), KEYS.span("node-1", TimestampMs(2))
    put(scene, key, span_object([run]))
    put(scene, another, span_object([replace(run, stream=replace(STREAM, incarnation=Incarnation("__another_1")))]))
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    tended(scene)
    scene.wait_for_purge()
    report = tended(scene)
    assert (report.purge.state, report.purge.logged) == (PurgeState.RUNNING, 1)
    assert report.purge_text == "waits for 1 objects of recovery logs"
    scene.archive.objects.delete(key)
    if versioned:
        assert tended(scene).purge.logged == 1
        for version in list(scene.archive.objects.versions(key)):
            scene.archive.objects.delete_versions([(key, version.version_id)])
    purge(scene)


def test_a_hold_that_came_after_the_deletion_holds_up_the_purge() -> None:
    scene = Scene()
    delete(scene)
    hold = put_hold(scene.stores, INCARNATION, first_offset=Offset(8), next_offset=None, reason="case 17", by="counsel")
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    report = tended(scene)
    assert (report.purge.state, report.purge.held) == (PurgeState.HELD, hold.id)
    assert report.purge_text == f"held by {hold.id}"
    assert len(scene.log) == 5


def test_objects_that_the_store_refuses_to_delete_hold_up_the_end() -> None:
    scene = Scene(object_lock=True)
    key = KEYS.quarantined(INCARNATION, Offset(20), "abc")
    put(scene, key)
    scene.archive.objects.put_legal_hold(key, True)
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    for _ in range(3):
        report = tended(scene)
        scene.wait_for_purge()
    assert report.purge.state is PurgeState.RUNNING
    assert [failure.key for failure in report.failures] == [key]
    assert all(isinstance(failure, DeleteFailure) for failure in report.failures)


def test_a_run_that_is_out_of_time_goes_on_in_the_next() -> None:
    scene = Scene()
    delete(scene)
    scene.clock.pass_ms(DEFAULT_GRACE_MS)
    assert list(tend(scene.stores, [STREAM], should_stop=lambda: True)) == []
    purge(scene)


def test_what_would_be_done_is_foretold() -> None:
    scene = Scene()
    delete(scene, grace_ms=0)
    (report,) = foretell_tending(scene.stores, [STREAM])
    assert (report.objects, report.purge.state) == (0, PurgeState.RUNNING)
    tended(scene)
    scene.clock.pass_ms(GRACE_MS)
    (report,) = foretell_tending(scene.stores, [STREAM])
    assert report.objects == 5
    assert len(scene.live) == 5


class Troubled(MemoryTable):
    """A table that loses the first race of a deletion or its undoing, and does not answer the second change."""

    trouble = 0

    def apply(self, change: Change) -> None:
        if change.event.kind not in {JournalKind.STREAM_DELETED, JournalKind.STREAM_UNDELETED}:
            super().apply(change)
            return
        self.trouble += 1
        if self.trouble % 2:
            raise LostRaceError("an upload was first")
        super().apply(change)
        raise OutcomeUnknownError("no answer came")


def test_lost_races_and_answers_that_never_come_are_overcome() -> None:
    scene = Scene(fragments=0)
    scene.archive.table = Troubled()
    scene.add()
    delete(scene)
    head = scene.head
    assert head is not None
    assert head.is_deleted
    assert not undelete_stream(scene.stores, INCARNATION, by="me").is_deleted


class Meanwhile(MemoryTable):
    """Has something happen once, before the next change of a kind."""

    kind: JournalKind | None = None
    act: Callable[[], object]

    def apply(self, change: Change) -> None:
        if change.event.kind is self.kind:
            self.kind = None
            self.act()
        super().apply(change)


def meanwhile(scene: Scene, kind: JournalKind, act: Callable[[], object]) -> None:
    table = Meanwhile()
    vars(table).update(vars(scene.archive.table))
    table.kind, table.act = kind, act
    scene.archive.table = table


def test_a_purge_removes_nothing_of_a_stream_that_is_undeleted_while_it_begins() -> None:
    scene = Scene()
    log = scene.log
    delete(scene, grace_ms=0)
    meanwhile(scene, JournalKind.FRAGMENTS_REMOVED, lambda: undelete_stream(scene.stores, INCARNATION, by="me"))
    assert tended(scene).purge.state is PurgeState.NONE
    assert scene.log == log


def test_a_purge_begins_anew_with_a_stream_that_is_undeleted_and_deleted_with_a_grace_meanwhile() -> None:
    scene = Scene()
    log = scene.log
    delete(scene, grace_ms=0)

    def again() -> None:
        undelete_stream(scene.stores, INCARNATION, by="me")
        scene.clock.pass_ms(1)
        delete(scene)

    meanwhile(scene, JournalKind.FRAGMENTS_REMOVED, again)
    assert tended(scene).purge.state is PurgeState.WAITING
    assert scene.log == log


@pytest.mark.parametrize("fragments", [0, 5])
@pytest.mark.parametrize("first_offset", [0, 100])
def test_a_hold_that_is_put_while_a_purge_begins_holds_up_all_of_it(fragments: int, first_offset: int) -> None:
    scene = Scene()
    if not fragments:
        truncate(scene.stores, INCARNATION, up_to_offset(Offset(1000)), why="", by="")
    log = scene.log
    delete(scene, grace_ms=0)

    def hold() -> None:
        put_hold(
            scene.stores, INCARNATION, first_offset=Offset(first_offset), next_offset=None, reason="case 17", by="me"
        )

    meanwhile(scene, JournalKind.FRAGMENTS_REMOVED, hold)
    assert tended(scene).purge.state is PurgeState.HELD
    assert scene.log == log
    assert undelete_stream(scene.stores, INCARNATION, by="me").holds == 1


@pytest.mark.parametrize("who", ["a policy", "somebody"])
def test_what_removes_a_beginning_does_not_begin_the_purge_of_a_stream_that_is_deleted_meanwhile(
    who: str,
) -> None:
    scene = Scene()
    log = scene.log
    meanwhile(scene, JournalKind.FRAGMENTS_REMOVED, lambda: delete(scene))
    if who == "a policy":
        policy = Policy("short", "%2F/*", max_age_ms=DAY_MS)
        scene.archive.table.put_policy(policy)
        (report,) = run_retention(scene.stores, [STREAM], dry_run=False)
        assert isinstance(report.error, StreamDeletedError)
    else:
        with pytest.raises(StreamDeletedError):
            truncate(scene.stores, INCARNATION, up_to_offset(Offset(4)), why="", by="")
    undelete_stream(scene.stores, INCARNATION, by="me")
    assert scene.log == log


def test_the_bucket_says_that_a_stream_is_deleted_before_what_was_left_behind_goes() -> None:
    scene = Scene()
    truncate(scene.stores, INCARNATION, up_to_offset(Offset(1000)), why="", by="")
    scene.wait_for_sweep()
    tended(scene)
    delete(scene, grace_ms=0)
    put(scene, KEYS.staged(INCARNATION, Offset(20), Offset(22)))
    for key in [key for key in scene.archive.objects.objects if "/control/floor." in key]:
        scene.archive.objects.delete(key)  # as if whoever deleted it had been killed before the note
    scene.wait_for_purge()
    assert tended(scene).purge.leftovers == 1
    note = scene.stores.control.latest_floor(INCARNATION)
    assert note is not None
    assert note.deleted_at is not None


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_at_any_call_an_undeletion_is_never_lost_even_if_the_note_of_the_deletion_comes_last(
    *, is_done: bool
) -> None:
    for number in count(1):
        scene = Scene()
        delete(scene)
        deleted = scene.head
        assert deleted is not None
        scene.archive.objects.delete(KEYS.floor_note(INCARNATION, deleted.revision))  # it is still on its way

        def on_call(called: int, _: str, done: bool, number: int = number) -> None:  # noqa: FBT001  as it is called
            if called > number or (called == number and done is is_done):
                raise Killed

        calls = Calls(scene.archive.table, scene.archive.objects, on_call)
        with suppress(Killed):
            undelete_stream(scene.watched(calls), INCARNATION, by="me")
        scene.stores.control.write_floor(deleted)
        head, rebuilt = scene.head, MemoryTable()
        assert head is not None
        objects = scene.archive.objects
        Rebuilder(rebuilt, objects, KEYS, scene.clock, GRACE_MS, reads_at_once=1).stream(INCARNATION)
        if not head.is_deleted:
            found = differences(scene.archive.table, rebuilt, INCARNATION)
            assert [one.fields for one in found if one.item == "log#head"] == []
        if calls.number < number:
            break
    assert number > 3
