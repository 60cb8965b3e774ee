"""Retention by policies, with storage classes, and restoring."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from coldstream.errors import ObjectNotFoundError, UnavailableError
from coldstream.lifecycle.classes import MIN_OBJECT_BYTES, move_to_class
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.object_locks import mirror_holds
from coldstream.lifecycle.policies import remove_policy, set_policy
from coldstream.lifecycle.restore import request_restore, restore_status
from coldstream.lifecycle.retention import RetentionReport, run_retention, summary_of
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import sweep
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.change import Change, DeleteEntry
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.policy import Policy, match
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import RestoreTier
from coldstream.units import Offset
from tests.support.archive import STREAM
from tests.support.compacting import Calls, Killed
from tests.support.lifecycle import DAY_MS, INCARNATION, Scene

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a test are small, and move all the same."""
    assert MIN_OBJECT_BYTES > 0
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 0)


def retained(scene: Scene, *, dry_run: bool = False) -> RetentionReport:
    (report,) = run_retention(scene.stores, [STREAM], dry_run=dry_run)
    return report


def old(scene: Scene, fragments: int) -> int:
    """Return an age that so many fragments are past."""
    return scene.clock.now - scene.time_of(fragments)


def glacial(scene: Scene, fragments: int, storage_class: StorageClass = StorageClass.GLACIER) -> Policy:
    return Policy("cold", "*/*", storage_class=storage_class, storage_class_age_ms=old(scene, fragments))


def classes(scene: Scene) -> list[StorageClass | None]:
    return [entry.storage_class for entry in scene.log]


def test_without_a_policy_everything_stays() -> None:
    scene = Scene()
    report = retained(scene)
    assert (report.policy, report.removal.fragments, report.removal.first_offset) == (None, 0, 0)
    assert len(scene.log) == 5


def test_the_policy_of_the_greatest_priority_counts_alone() -> None:
    scene = Scene()
    set_policy(scene.stores, Policy("all", "*/*", max_age_ms=DAY_MS))
    set_policy(scene.stores, Policy("orders", "%2F/orders", priority=1, max_age_ms=old(scene, 2)))
    set_policy(scene.stores, Policy("others", "%2F/others", priority=2, max_age_ms=0))
    report = retained(scene)
    assert (report.policy, report.removal.fragments, report.removal.first_offset) == ("orders", 2, 4)
    assert list(scene.archive.table.journal(INCARNATION))[-1].detail == "policy orders"
    assert remove_policy(scene.stores, "orders")
    assert not remove_policy(scene.stores, "orders")
    assert retained(scene).policy == "all"
    assert scene.log == ()


def test_policies_are_in_the_bucket_too() -> None:
    scene = Scene()
    policy = Policy("all", "*/*", max_age_ms=DAY_MS)
    set_policy(scene.stores, policy)
    assert list(scene.stores.control.policies()) == [policy]
    remove_policy(scene.stores, "all")
    assert list(scene.stores.control.policies()) == []


def test_a_dry_run_foretells_it_and_changes_nothing() -> None:
    scene = Scene()
    set_policy(scene.stores, Policy("all", "*/*", max_age_ms=old(scene, 2)))
    head = scene.head
    foretold = retained(scene, dry_run=True)
    assert scene.head == head
    done = retained(scene)
    assert foretold.removal == done.removal
    assert (foretold.is_dry_run, done.is_dry_run) == (True, False)
    assert done.saved_usd_a_month > 0
    summary = summary_of([done])
    assert (summary["objects"], summary["dry_run"], summary["streams"][0]["first_offset"]) == (2, False, 4)
    assert retained(scene).removal.fragments == 0


def test_a_deleted_stream_is_left_as_it_is() -> None:
    scene = Scene()
    set_policy(scene.stores, Policy("all", "*/*", max_age_ms=0))
    delete_stream(scene.stores, INCARNATION, grace_ms=DAY_MS, by="me")
    assert list(run_retention(scene.stores, [STREAM], dry_run=False)) == []
    assert len(scene.log) == 5


def test_what_fails_in_a_stream_is_reported_and_the_next_is_done() -> None:
    class Silent(MemoryTable):
        def apply(self, change: Change) -> None:
            if change.of(DeleteEntry):
                raise UnavailableError("no answer")
            super().apply(change)

    scene = Scene(fragments=0)
    scene.archive.table = Silent()
    for _ in range(3):
        scene.add()
    set_policy(scene.stores, Policy("all", "*/*", max_age_ms=0))
    reports = list(run_retention(scene.stores, [STREAM, STREAM], dry_run=False))
    assert [str(report.error) for report in reports] == ["no answer", "no answer"]
    assert summary_of(reports)["streams"][0]["error"] == "UnavailableError: no answer"


def test_out_of_time_nothing_is_begun() -> None:
    scene = Scene()
    set_policy(scene.stores, Policy("all", "*/*", max_age_ms=0))
    assert list(run_retention(scene.stores, [STREAM], dry_run=False, should_stop=lambda: True)) == []


def test_old_fragments_move_to_the_policys_class_and_their_entries_say_so() -> None:
    scene = Scene()
    set_policy(scene.stores, glacial(scene, 3))
    foretold = retained(scene, dry_run=True)
    report = retained(scene)
    assert foretold.moves == report.moves
    assert report.moves.objects == 3
    assert classes(scene) == [StorageClass.GLACIER] * 3 + [None] * 2
    for entry in scene.log:
        info = scene.archive.objects.info(entry.key)
        assert info is not None
        assert info.storage_class == entry.storage_class
    assert retained(scene).moves.objects == 0


def test_fragments_only_become_colder() -> None:
    scene = Scene()
    set_policy(scene.stores, glacial(scene, 2, StorageClass.DEEP_ARCHIVE))
    retained(scene)
    set_policy(scene.stores, glacial(scene, 4, StorageClass.GLACIER_IR))
    assert retained(scene).moves.objects == 2
    cold = [StorageClass.DEEP_ARCHIVE] * 2 + [StorageClass.GLACIER_IR] * 2
    assert classes(scene) == [*cold, None]


def test_what_would_have_to_be_restored_first_stays_and_holds_up_nothing() -> None:
    scene = Scene()
    set_policy(scene.stores, glacial(scene, 2))
    retained(scene)
    set_policy(scene.stores, glacial(scene, 4, StorageClass.DEEP_ARCHIVE))
    foretold = retained(scene, dry_run=True)
    report = retained(scene)
    assert report.error is None
    assert foretold.moves == report.moves
    assert classes(scene) == [StorageClass.GLACIER] * 2 + [StorageClass.DEEP_ARCHIVE] * 2 + [None]


def test_what_was_swept_since_it_was_listed_is_passed_over() -> None:
    scene = Scene()

    def end_the_next(_: int) -> None:
        truncate(scene.stores, INCARNATION, up_to_offset(scene.offset(3)), why="", by="")
        scene.wait_for_sweep()
        sweep(scene.stores, INCARNATION)

    moves = move_to_class(scene.stores, INCARNATION, StorageClass.GLACIER, scene.time_of(4), on_moved=end_the_next)
    assert moves.objects == 2
    assert classes(scene) == [StorageClass.GLACIER, None]


def test_an_object_that_is_gone_although_its_entry_is_there_is_an_error() -> None:
    scene = Scene()
    scene.archive.objects.delete(scene.log[1].key)
    set_policy(scene.stores, glacial(scene, 3))
    assert isinstance(retained(scene).error, ObjectNotFoundError)


def test_small_objects_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", MIN_OBJECT_BYTES)
    scene = Scene()
    set_policy(scene.stores, glacial(scene, 3))
    assert retained(scene).moves.objects == 0


def test_what_goes_is_not_moved_before() -> None:
    scene = Scene()
    policy = Policy(
        "both", "*/*", max_age_ms=old(scene, 2), storage_class=StorageClass.GLACIER, storage_class_age_ms=old(scene, 4)
    )
    set_policy(scene.stores, policy)
    foretold = retained(scene, dry_run=True)
    report = retained(scene)
    assert (report.removal.fragments, report.moves.objects) == (2, 2)
    assert foretold.moves == report.moves


def test_held_objects_stay_where_they_are() -> None:
    scene = Scene(object_lock=True)
    put_hold(scene.stores, INCARNATION, first_offset=Offset(0), next_offset=Offset(3), reason="case", by="counsel")
    mirror_holds(scene.stores, INCARNATION)
    set_policy(scene.stores, glacial(scene, 4))
    foretold = retained(scene, dry_run=True)
    report = retained(scene)
    assert report.moves.objects == 2
    assert foretold.moves == report.moves
    assert classes(scene) == [None, None, StorageClass.GLACIER, StorageClass.GLACIER, None]
    assert [scene.archive.objects.legal_hold(entry.key) for entry in scene.log] == [True, True, False, False, False]


def test_a_copy_that_a_run_left_without_an_entry_is_taken_by_the_next() -> None:
    scene = Scene()
    entry = scene.log[0]
    info = scene.archive.objects.info(entry.key)
    assert info is not None
    key = scene.stores.keys.fragment(INCARNATION, entry.first_offset, 1)
    scene.archive.objects.copy_in_class(entry.key, key, "GLACIER", if_match=info.etag)
    scene.archive.objects.requests.clear()
    set_policy(scene.stores, glacial(scene, 1))
    assert retained(scene).moves.objects == 1
    assert scene.archive.objects.requests["CopyObject"] == 0
    assert (scene.log[0].key, scene.log[0].storage_class) == (key, StorageClass.GLACIER)


def test_a_copy_that_somebody_could_collect_is_made_anew() -> None:
    scene = Scene()
    first = scene.log[0]
    head = scene.archive.table.head(INCARNATION)
    assert head is not None
    scene.archive.table.apply(plan_fence(head, 7, scene.stores.now()))
    set_policy(scene.stores, glacial(scene, 1))
    assert retained(scene).moves.objects == 1
    assert scene.log[0].generation == 7
    assert first.key in {
        one.key for one in scene.archive.table.tombstones(INCARNATION, scene.stores.due_at(scene.stores.now()), 10)
    }


def test_cold_offsets_are_restored_and_told_how_far() -> None:
    scene = Scene()
    set_policy(scene.stores, glacial(scene, 3))
    retained(scene)
    stores = scene.stores

    def status() -> tuple[int, int, int, int]:
        found = restore_status(stores, INCARNATION, Offset(3), Offset(8), days=3, tier=RestoreTier.BULK)
        return found.objects, found.cold, found.readable, found.running

    assert status() == (3, 2, 1, 0)
    report = request_restore(stores, INCARNATION, Offset(3), Offset(8), days=3, tier=RestoreTier.BULK)
    assert (report.requested, report.running, report.is_readable) == (2, 2, False)
    assert report.usd > 0
    assert status() == (3, 2, 1, 2)
    again = request_restore(stores, INCARNATION, Offset(3), Offset(8), days=3, tier=RestoreTier.BULK)
    assert (again.requested, again.running) == (0, 2)
    scene.archive.objects.finish_restores()
    assert status() == (3, 2, 3, 0)
    found = restore_status(stores, INCARNATION, Offset(2), None, days=3, tier=RestoreTier.BULK)
    assert found.is_readable
    assert found.expires_at is not None


LONG, SHORT = Policy("orders", "%2F/orders", max_age_ms=365 * DAY_MS), Policy("orders", "%2F/o*", max_age_ms=0)
AUDIT = Policy("audit", "%2F/orders", priority=1)
CHANGES: dict[str, tuple[tuple[Policy, ...], Callable[[LifecycleStores], object]]] = {
    "from short to long": ((SHORT,), lambda stores: set_policy(stores, LONG)),
    "from long to short": ((LONG,), lambda stores: set_policy(stores, SHORT)),
    "a new one": ((), lambda stores: set_policy(stores, SHORT)),
    "the end of one that keeps": ((SHORT, AUDIT), lambda stores: remove_policy(stores, "audit")),
    "the end of one that lets go": ((SHORT,), lambda stores: remove_policy(stores, "orders")),
}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", CHANGES)
def test_killed_at_any_call_a_policy_lets_nothing_go_by_the_bucket_that_it_keeps_by_the_table(
    name: str, *, is_done: bool
) -> None:
    before, change = CHANGES[name]
    for number in count(1):
        scene = Scene()
        for policy in before:
            set_policy(scene.stores, policy)

        def on_call(called: int, _: str, done: bool, number: int = number) -> None:  # noqa: FBT001  as it is called
            if called > number or (called == number and done is is_done):
                raise Killed

        calls = Calls(scene.archive.table, scene.archive.objects, on_call)
        with suppress(Killed):
            change(scene.watched(calls))
        by_table = match(scene.archive.table.policies(), STREAM)
        by_bucket = match(scene.stores.control.policies(), STREAM)
        assert by_bucket == by_table or by_bucket is None or by_bucket.max_age_ms is None
        change(scene.stores)
        assert sorted(map(str, scene.archive.table.policies())) == sorted(map(str, scene.stores.control.policies()))
        if calls.number < number:
            break
    assert number > 3
