"""What plans refuse at their borders: views that show half of a change, copies that are none, claims past the most."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.errors import CorruptionError, InvalidSettingError, LostRaceError, NotDeletedError, UnavailableError
from coldstream.manifest.access import MAX_GRANT_BYTES
from coldstream.manifest.appender import Appender
from coldstream.manifest.appending import plan_create, plan_give_up, plan_open, plan_trim
from coldstream.manifest.change import MAX_ITEMS, Change, DeleteEntry, EntryVersion, PutErasure, Relink, fitting
from coldstream.manifest.claiming import MAX_CLAIMS, open_claims, plan_claim, plan_claim_end
from coldstream.manifest.commit import Neighbourhood, after_raise, plan_commit
from coldstream.manifest.deletion import plan_delete, plan_undelete
from coldstream.manifest.entry import (
    Encoding,
    Erasure,
    ErasureState,
    FragmentEntry,
    Gap,
    Head,
    JournalKind,
    Loss,
    StorageClass,
)
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import MIN_TARGET_BYTES
from coldstream.manifest.missing import MAX_REASONS, with_reason
from coldstream.manifest.policy import Policy
from coldstream.manifest.purging import MAX_FORGOTTEN, plan_missing_forgotten, plan_purge_begin
from coldstream.manifest.rebuilt import MAX_RECORDS, MAX_TOMBSTONES, plan_records
from coldstream.manifest.recorded import MAX_JSON_BYTES, change_of
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.shard_map import ShardHash
from coldstream.manifest.storage_class import in_class, plan_storage_class
from coldstream.units import Epoch, Offset, TimestampMs
from tests.manifest.test_appending import FIRST
from tests.manifest.world import AT, DUE, STREAM, World, entry, hold
from tests.support.changes import change_to

FORMATS = Path(__file__).parents[2] / "docs/formats.md"


def test_the_names_that_items_hold_are_those_of_the_page_on_formats() -> None:
    # Not by parameters: the id of a test would then change with the name, and nobody would miss it.
    page = FORMATS.read_text()
    names = (*JournalKind, *StorageClass, *Encoding, *ShardEventKind, *ShardHash)
    assert [value for value in names if f"`{value}`" not in page] == []


def around(world: World, before: FragmentEntry | None, after: Sequence[FragmentEntry]) -> Neighbourhood:
    return Neighbourhood(world.head, before, tuple(after))


def test_a_late_entry_is_planned_only_between_the_entries_that_are_linked() -> None:
    world = World((0, 10), (10, 20), (40, 50))
    first, second, last = world.log
    late = entry(20, 30)
    assert plan_commit(around(world, second, [last]), late, AT).new_entry is not None
    with pytest.raises(LostRaceError, match="the tail is 50, and no entry past 20 shows"):
        plan_commit(around(world, second, []), late, AT)
    for before in (first, None):
        with pytest.raises(LostRaceError, match="half of a change shows before offset 40"):
            plan_commit(around(world, before, [last]), late, AT)
    with pytest.raises(LostRaceError, match="half of a change shows before offset 10"):
        plan_commit(around(world, None, [second, last]), entry(5, 10), AT)


def test_a_late_entry_is_not_planned_unless_all_that_it_raises_shows() -> None:
    world = World((0, 10), (20, 30), (30, 40))
    before, raised, _ = world.log
    with pytest.raises(LostRaceError, match="the tail is 40, and no entry past 30 shows"):
        plan_commit(around(world, before, [raised]), entry(10, 20, time=1000), AT)


def test_a_change_has_the_event_of_its_revision() -> None:
    (change,) = World((0, 10)).changes
    with pytest.raises(ValueError, match="a change to revision 1 with the event of 2"):
        Change(change.head, replace(change.event, revision=2))


def test_one_entry_fits_into_a_change_however_large_it_is_and_no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = World((0, 10), (10, 20), (20, 30)).log
    assert fitting(entries, 2) == 2
    monkeypatch.setattr("coldstream.manifest.change.MAX_BYTES", 1)
    assert fitting(entries, 2) == 1


def test_what_follows_a_raise_is_planned_up_to_the_nearest_entry_that_was_raised() -> None:
    world = World((0, 10), *((first, first + 10) for first in range(20, 2020, 10)))
    late = entry(10, 20, time=1000)
    seen = world.around(late)
    change = plan_commit(seen, late, AT)
    assert change.new_entry is None
    left = after_raise(seen, change)
    raised = change.of(Relink)[0]
    assert left.after[-1].next_offset == raised.next_offset
    assert left.after[-1].prior_timestamp == raised.prior_timestamp == 1000
    assert list(left.after[:-1]) == [one for one in seen.after if one.next_offset < raised.next_offset]


def claimed(head: Head, count: int, at: int = 0) -> Head:
    for number in range(count):
        head = plan_claim(head, [(Offset(10 * number), Offset(10 * number + 5))], (), TimestampMs(at)).head
    return head


def test_a_hundred_deletions_are_claimed_at_once_and_one_more_when_the_first_is_over() -> None:
    head = claimed(Head(STREAM), MAX_CLAIMS - 1)
    head = plan_claim(head, [(Offset(0), Offset(1))], (), TimestampMs(1)).head
    assert len(head.claims) == MAX_CLAIMS == 100
    with pytest.raises(UnavailableError, match="100 deletions"):
        plan_claim(head, [(Offset(0), Offset(1))], (), TimestampMs(1_199_999))
    assert head.claims[0].ends_at == 1_200_000, "20 minutes"
    later = plan_claim(head, [(Offset(3), Offset(4)), (Offset(1), Offset(2))], (), TimestampMs(1_200_000)).head
    assert [(one.first_offset, one.next_offset) for one in later.claims] == [(0, 1), (1, 4)]


def test_the_end_of_a_claim_leaves_the_others() -> None:
    head = claimed(Head(STREAM), 3)
    one, other, last = head.claims
    change = plan_claim_end(head, other, AT)
    assert change.head.claims == (one, last)
    assert (change.event.kind, change.event.first_offset) == (JournalKind.DELETION_ENDED, 10)


def test_a_hold_waits_for_the_claims_of_its_offsets_until_their_end() -> None:
    head = claimed(Head(STREAM), 3)
    assert open_claims(head, hold(12, 20), TimestampMs(1_199_999)) == head.claims[1:2]
    assert open_claims(head, hold(12, None), TimestampMs(1_199_999)) == head.claims[1:]
    assert open_claims(head, hold(12, None), TimestampMs(1_200_000)) == ()


def test_a_new_appender_begins_at_offset_zero() -> None:
    assert Appender() == Appender(Epoch(0), (), Offset(0), Offset(0), is_sealed=False, properties=())
    world = World()
    world.apply(plan_create(STREAM, AT, first=Offset(0), properties={}))
    world.apply(plan_open(world.head, FIRST, AT, "host-1"))
    assert plan_trim(world.head, Epoch(1), Offset(0), AT) is None


def test_openings_are_given_up_while_a_deletion_can_be_undone_and_once() -> None:
    world = World()
    world.apply(plan_create(STREAM, AT, first=Offset(0), properties={}))
    world.apply(plan_open(world.head, FIRST, AT, "host-1"))
    assert plan_give_up(world.head, AT) is None
    world.apply(plan_delete(world.head, AT, DUE, "alice"))
    change = plan_give_up(world.head, AT)
    assert change is not None
    assert change.event.by is None, "nobody's wish: it follows from the deletion"
    world.apply(change)
    assert world.head.appender is not None
    assert world.head.appender.openings == ()
    assert plan_give_up(world.head, AT) is None
    world.apply(plan_undelete(world.head, AT, "alice"))
    assert plan_give_up(world.head, AT) is None


def test_an_object_in_a_class_is_another_one() -> None:
    world = World((0, 10))
    (before,) = world.log
    for copy in (
        in_class(before, before.key, 1, StorageClass.GLACIER),
        replace(in_class(before, "copy", 1, StorageClass.GLACIER), crc32=before.crc32 + 1),
    ):
        with pytest.raises(ValueError, match="is no copy of"):
            plan_storage_class(world.head, before, copy, (), at=AT, due_at=DUE)


def test_an_entry_has_frames_if_and_only_if_it_is_compressed() -> None:
    one = entry(0, 10)
    frames = Frames((8, 90))
    assert replace(one, encoding=Encoding.ZSTD_SEEKABLE, frames=frames).frames == frames
    with pytest.raises(ValueError, match="with frames"):
        replace(one, frames=frames)
    with pytest.raises(ValueError, match="without frames"):
        replace(one, encoding=Encoding.ZSTD_SEEKABLE)
    with pytest.raises(ValueError, match="1 points, 3 positions"):
        replace(one, encoding=Encoding.ZSTD_SEEKABLE, frames=Frames((8, 90, 95)))


@pytest.mark.parametrize(
    ("first", "prior", "follows"),
    [(10, None, True), (5, None, True), (20, None, False), (20, 10, True), (20, 9, True), (20, 11, False)],
)
def test_an_entry_follows_another_unless_its_link_tells_of_one_between(
    first: int, prior: int | None, *, follows: bool
) -> None:
    one = replace(entry(first, 30), prior_offset=None if prior is None else Offset(prior))
    assert one.follows(entry(0, 10)) is follows


@pytest.mark.parametrize(
    ("count", "end"), [(MAX_REASONS, f"reason {MAX_REASONS - 1}"), (MAX_REASONS + 1, "and 1 more")]
)
def test_a_gap_gives_so_many_reasons_and_counts_the_others(count: int, end: str) -> None:
    losses = [Loss(Offset(number), Offset(number + 1), f"reason {number}", AT) for number in range(count)]
    reason = with_reason(Gap(Offset(0), Offset(count)), losses).reason
    assert reason is not None
    assert reason.split("; ")[-1] == end
    assert len(reason.split("; ")) == count


@pytest.mark.parametrize("field", ["max_age_ms", "max_bytes", "least_messages", "least_bytes", "least_age_ms"])
def test_a_policy_keeps_no_less_than_nothing(field: str) -> None:
    assert getattr(Policy("one", "%2F/orders", **{field: 0}), field) == 0
    with pytest.raises(InvalidSettingError, match=f"{field}: -1 is less than 0"):
        Policy("one", "%2F/orders", **{field: -1})


def test_an_entry_that_changed_meanwhile_is_neither_linked_nor_deleted() -> None:
    world = World((0, 10), (10, 20))
    head = replace(world.head, revision=world.head.revision + 1)
    last = EntryVersion.of(world.log[1])
    stale = EntryVersion.of(replace(world.log[1], key="other"))
    gone = EntryVersion.of(entry(20, 30))
    linked = world.state.after(change_to(head, (Relink(last, Offset(10), AT, AT),)))
    assert linked.entries[Offset(20)].prior_timestamp == AT
    assert Offset(20) not in world.state.after(change_to(head, (DeleteEntry(last),))).entries
    for write in (Relink(stale, Offset(10), AT, AT), DeleteEntry(stale), DeleteEntry(gone)):
        with pytest.raises(LostRaceError):
            world.state.after(change_to(head, (write,)))


def test_an_erasure_that_went_on_meanwhile_refuses_the_change() -> None:
    world = World((0, 10), (10, 20))
    head = replace(world.head, revision=world.head.revision + 1)
    begun = Erasure("e1", Offset(0), Offset(20), "x", "a lawsuit", "alice", AT, 0, "", ErasureState.RUNNING, Offset(0))
    later = replace(begun, reached=Offset(10))
    with pytest.raises(LostRaceError, match="e1 went on"):
        world.state.after(change_to(head, (PutErasure(begun, later),)))
    after = world.state.after(change_to(head, (PutErasure(None, begun),)))
    head = replace(head, revision=head.revision + 1)
    for before in (None, later):
        with pytest.raises(LostRaceError, match="e1 went on"):
            after.after(change_to(head, (PutErasure(before, later),)))
    assert after.after(change_to(head, (PutErasure(begun, later),))).erasures["e1"] == later


def test_a_purge_without_entries_to_remove_begins_only_if_there_are_none_and_the_stream_is_deleted() -> None:
    with pytest.raises(NotDeletedError):
        plan_purge_begin(Head(STREAM), AT)
    with pytest.raises(LostRaceError, match="still has 1 fragments"):
        plan_purge_begin(replace(World((0, 10)).head, deleted_at=AT), AT)


def test_records_that_are_rebuilt_are_about_no_offsets() -> None:
    event = plan_records(Head(STREAM), [hold(0, 10)], at=AT).event
    assert (event.first_offset, event.next_offset, event.detail) == (None, None, "1 records")


def test_the_end_of_a_purge_is_about_no_offsets() -> None:
    deleted = replace(Head(STREAM), deleted_at=AT, losses=1)
    begun = plan_purge_begin(deleted, AT)
    forgotten = plan_missing_forgotten(begun.head, [Loss(Offset(0), Offset(5), "gone", AT)], AT)
    for event in (begun.event, forgotten.event):
        assert (event.first_offset, event.next_offset) == (None, None)
    assert forgotten.head.losses == 0


def test_a_bomb_in_the_journal_is_not_inflated() -> None:
    world = World((0, 10))
    event = world.changes[0].event
    with pytest.raises(CorruptionError):
        change_of(STREAM, event, b"\1" + zlib.compress(bytes(33 << 20), 1))


def test_bounds_of_one_change_and_of_a_merged_fragment() -> None:
    assert MAX_FORGOTTEN + 2 == MAX_ITEMS
    assert MAX_TOMBSTONES + 2 == MAX_RECORDS == MAX_ITEMS - 3
    assert MIN_TARGET_BYTES == 65_536
    assert MAX_GRANT_BYTES + 24 == 1024, "of the sort keys of DynamoDB"
    assert MAX_JSON_BYTES == 32 * 1024 * 1024


def test_a_stream_that_is_new_has_told_nothing() -> None:
    assert (Head(STREAM).note_revision, Head(STREAM).journal_from) == (0, 1)
