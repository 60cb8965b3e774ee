"""Legal holds, and their mirror in S3 Object Lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from coldstream.errors import (
    AccessDeniedError,
    HeldError,
    LostRaceError,
    NotFoundError,
    OutcomeUnknownError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.object_locks import LockReport, mirror_holds
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.sweep import due_tombstones
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.manifest.change import Change, DeleteHold, PutHold
from coldstream.manifest.claiming import MAX_CLAIMS
from coldstream.manifest.entry import CLAIM_MS, DeletionClaim, Hold, Tombstone
from coldstream.manifest.holding import plan_release
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import ClaimedDeletion, claim_deletion, end_claim, read_holds
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import SIGNATURE_MS
from coldstream.units import Offset
from tests.support.archive import NOW
from tests.support.compacting import options_of, run
from tests.support.lifecycle import INCARNATION, KEYS, Scene


def hold(scene: Scene, first: int, end: int | None) -> Hold:
    return put_hold(
        scene.stores,
        INCARNATION,
        first_offset=Offset(first),
        next_offset=None if end is None else Offset(end),
        reason="case 17",
        by="counsel",
    )


def locked(scene: Scene) -> list[int]:
    """List the fragments whose objects are under a legal hold."""
    return [entry.first_offset // scene.messages for entry in scene.log if scene.archive.objects.legal_hold(entry.key)]


def test_a_hold_is_in_the_table_in_the_bucket_and_in_the_journal() -> None:
    scene = Scene()
    put = hold(scene, 2, 4)
    assert (put.first_offset, put.next_offset, put.reason, put.by, put.at) == (2, 4, "case 17", "counsel", NOW)
    assert scene.archive.table.holds(INCARNATION) == (put,)
    assert KEYS.hold_note(INCARNATION, put.id) in scene.archive.objects.objects
    assert list(scene.archive.table.journal(INCARNATION))[-1].by == "counsel"


def test_two_holds_have_different_ids() -> None:
    scene = Scene()
    assert hold(scene, 0, None).id != hold(scene, 0, None).id
    head = scene.head
    assert head is not None
    assert len(read_holds(scene.archive.table, head)) == 2


def test_a_released_hold_is_gone_and_the_bucket_says_so() -> None:
    scene = Scene()
    put = hold(scene, 2, 4)
    assert release_hold(scene.stores, INCARNATION, put.id, by="judge") == put
    assert scene.archive.table.holds(INCARNATION) == ()
    assert KEYS.released_note(INCARNATION, put.id) in scene.archive.objects.objects
    with pytest.raises(NotFoundError):
        release_hold(scene.stores, INCARNATION, put.id, by="judge")


def test_a_stream_that_is_not_there_cannot_be_held() -> None:
    scene = Scene(fragments=0)
    with pytest.raises(StreamNotFoundError):
        hold(scene, 0, None)
    assert not scene.archive.objects.objects


def test_a_held_stream_is_not_deleted() -> None:
    scene = Scene()
    hold(scene, 100, None)
    with pytest.raises(HeldError, match="case 17"):
        delete_stream(scene.stores, INCARNATION, grace_ms=0, by="me")


def test_the_bucket_knows_of_a_hold_before_the_table_and_of_its_release_after_it() -> None:
    seen: list[tuple[bool, bool]] = []

    class Watching(MemoryTable):
        def apply(self, change: Change) -> None:
            for write in (*change.of(PutHold), *change.of(DeleteHold)):
                keys = scene.archive.objects.objects
                seen.append(
                    (
                        KEYS.hold_note(INCARNATION, write.hold.id) in keys,
                        KEYS.released_note(INCARNATION, write.hold.id) in keys,
                    )
                )
            super().apply(change)

    scene = Scene(fragments=0)
    scene.archive.table = Watching()
    scene.add()
    release_hold(scene.stores, INCARNATION, hold(scene, 0, None).id, by="judge")
    assert seen == [(True, False), (True, False)]


class Troubled(MemoryTable):
    """A table that loses the first race of a hold, and does not answer the second change."""

    trouble = 0

    def apply(self, change: Change) -> None:
        if not (change.of(PutHold) or change.of(DeleteHold)):
            super().apply(change)
            return
        self.trouble += 1
        if self.trouble % 2:
            raise LostRaceError("an upload was first")
        super().apply(change)
        raise OutcomeUnknownError("no answer came")


def test_lost_races_and_answers_that_never_come_put_and_release_it_once() -> None:
    scene = Scene(fragments=0)
    scene.archive.table = Troubled()
    scene.add()
    put = hold(scene, 0, None)
    assert scene.archive.table.holds(INCARNATION) == (put,)
    assert release_hold(scene.stores, INCARNATION, put.id, by="judge") == put
    assert scene.archive.table.holds(INCARNATION) == ()


def test_a_hold_whose_id_another_has_is_not_told_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.lifecycle.holds.uuid4", lambda: UUID(int=7))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    scene = Scene(fragments=2)
    first = hold(scene, 0, 2)
    with pytest.raises(LostRaceError):
        hold(scene, 2, 4)
    assert scene.archive.table.holds(INCARNATION) == (first,)


def test_an_incomplete_list_of_holds_is_read_again() -> None:
    class Late(MemoryTable):
        is_late = True

        def holds(self, incarnation: Incarnation) -> tuple[Hold, ...]:
            found = super().holds(incarnation)
            if self.is_late and found:
                self.is_late = False
                return ()
            return found

    scene = Scene(fragments=0)
    table = scene.archive.table = Late()
    for _ in range(3):
        scene.add()
    hold(scene, 0, 2)
    table.is_late = True
    assert remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(6)), why="", by="").fragments == 0


def test_objects_that_a_hold_overlaps_are_locked_and_released_with_it() -> None:
    scene = Scene(object_lock=True)
    first, second = hold(scene, 3, 5), hold(scene, 4, 8)
    assert mirror_holds(scene.stores, INCARNATION) == LockReport(locked=3)
    assert locked(scene) == [1, 2, 3]
    release_hold(scene.stores, INCARNATION, first.id, by="judge")
    assert mirror_holds(scene.stores, INCARNATION) == LockReport(released=1)
    assert locked(scene) == [2, 3]
    release_hold(scene.stores, INCARNATION, second.id, by="judge")
    assert mirror_holds(scene.stores, INCARNATION) == LockReport(released=2)
    assert locked(scene) == []


def test_what_is_archived_or_merged_later_is_locked_by_the_next_sweep() -> None:
    scene = Scene(object_lock=True)
    hold(scene, 6, None)
    mirror_holds(scene.stores, INCARNATION)
    assert locked(scene) == [3, 4]
    scene.add()
    assert mirror_holds(scene.stores, INCARNATION) == LockReport(locked=1)
    assert locked(scene) == [3, 4, 5]


def test_objects_that_wait_for_the_sweep_are_released_too() -> None:
    scene = Scene(object_lock=True)
    put = hold(scene, 0, None)
    mirror_holds(scene.stores, INCARNATION)
    run(scene.archive, options_of())
    mirror_holds(scene.stores, INCARNATION)
    release_hold(scene.stores, INCARNATION, put.id, by="judge")
    mirror_holds(scene.stores, INCARNATION)
    assert not any(scene.archive.objects.legal_hold(key) for key in scene.live)


def test_nothing_new_costs_nothing() -> None:
    scene = Scene(object_lock=True)
    hold(scene, 0, None)
    mirror_holds(scene.stores, INCARNATION)
    scene.archive.objects.requests.clear()
    stores = scene.stores
    scene.archive.objects.requests.clear()
    assert mirror_holds(stores, INCARNATION) == LockReport()
    assert not scene.archive.objects.requests


def test_it_stops_and_goes_on() -> None:
    scene = Scene(object_lock=True)
    hold(scene, 0, None)
    done: list[int] = []
    report = mirror_holds(scene.stores, INCARNATION, on_object=done.append, should_stop=lambda: len(done) == 2)
    assert (report.locked, report.is_stopped) == (2, True)
    assert mirror_holds(scene.stores, INCARNATION) == LockReport(locked=3)


def test_a_bucket_without_object_lock_is_left_alone() -> None:
    scene = Scene(versioned=True)
    hold(scene, 0, None)
    assert mirror_holds(scene.stores, INCARNATION) == LockReport()


def being_swept(scene: Scene) -> ClaimedDeletion[Tombstone]:
    """Remove the first fragment, and have a sweep claim its object."""
    remove_prefix(scene.stores, INCARNATION, up_to_offset(Offset(2)), why="", by="")
    scene.wait_for_sweep()
    table = scene.archive.table
    claimed = claim_deletion(
        table,
        INCARNATION,
        due_tombstones(table, INCARNATION, scene.clock.now),
        lambda one: (one.first_offset, one.next_offset),
        scene.clock,
    )
    assert claimed is not None
    return claimed


def waited_for(scene: Scene, first: int, wait: Callable[[], None]) -> list[DeletionClaim]:
    """Put a hold, and return the claims that it waited for, one for each wait."""
    waits: list[DeletionClaim] = []

    def told(claims: Sequence[DeletionClaim]) -> None:
        waits.extend(claims)
        wait()

    put_hold(
        scene.stores,
        INCARNATION,
        first_offset=Offset(first),
        next_offset=None,
        reason="case 17",
        by="counsel",
        wait=told,
    )
    return waits


def test_a_hold_waits_for_the_end_of_a_deletion_that_was_claimed_before() -> None:
    scene = Scene()
    claim = being_swept(scene).claim
    assert waited_for(scene, 0, lambda: end_claim(scene.archive.table, INCARNATION, claim, scene.clock)) == [claim]


def test_a_hold_waits_until_s3_refuses_what_a_sweep_that_died_has_claimed() -> None:
    scene = Scene()
    claim = being_swept(scene).claim
    waits = waited_for(scene, 0, lambda: scene.clock.pass_ms(CLAIM_MS - 1 if scene.clock.now == claim.at else 1))
    assert waits == [claim, claim]
    with pytest.raises(AccessDeniedError):
        scene.archive.objects.delete_many(["any"], signed_at=claim.at)


def test_a_hold_does_not_wait_for_deletions_of_other_offsets() -> None:
    scene = Scene()
    being_swept(scene)
    assert not waited_for(scene, 2, lambda: None)


def test_a_claim_leaves_out_what_is_held() -> None:
    scene = Scene()
    hold(scene, 0, 1)
    spans = [(Offset(0), Offset(2)), (Offset(2), Offset(4))]
    claimed = claim_deletion(scene.archive.table, INCARNATION, spans, lambda one: one, scene.clock)
    assert claimed is not None
    assert claimed.objects == (spans[1],)
    head = scene.head
    assert head is not None
    assert head.claims == (DeletionClaim(head.revision, Offset(2), Offset(4), NOW),)
    assert claim_deletion(scene.archive.table, INCARNATION, spans[:1], lambda one: one, scene.clock) is None


def test_a_claim_whose_maker_died_goes_with_the_next_one() -> None:
    scene = Scene()
    before = being_swept(scene).claim
    scene.clock.pass_ms(CLAIM_MS)
    claimed = claim_deletion(scene.archive.table, INCARNATION, [(Offset(0), Offset(2))], lambda one: one, scene.clock)
    assert claimed is not None
    assert before not in claimed.head.claims
    assert claimed.head.claims == (claimed.claim,)


def test_a_head_has_no_more_claims_than_every_change_may_carry() -> None:
    scene = Scene()
    spans = [(Offset(0), Offset(2))]

    def claim() -> None:
        assert claim_deletion(scene.archive.table, INCARNATION, spans, lambda one: one, scene.clock) is not None

    for _ in range(MAX_CLAIMS):
        claim()  # and is never told that all of it was deleted
    with pytest.raises(UnavailableError, match="100 deletions"):
        claim()
    scene.clock.pass_ms(CLAIM_MS)
    claim()
    assert scene.head is not None
    assert len(scene.head.claims) == 1


def test_claims_are_over_later_than_s3_takes_their_requests() -> None:
    assert CLAIM_MS > SIGNATURE_MS + 60_000


def test_a_hold_that_only_the_bucket_has_is_released_there() -> None:
    scene = Scene()
    put = hold(scene, 2, 4)
    head = scene.head
    assert head is not None
    scene.archive.table.apply(plan_release(head, put, NOW, "judge"))  # by a process that died before its note
    with pytest.raises(NotFoundError):
        release_hold(scene.stores, INCARNATION, put.id, by="judge")
    assert [one.id for one in scene.stores.control.releases(INCARNATION)] == [put.id]
