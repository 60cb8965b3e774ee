"""Segments in quarantine: looked at, tried again, released and discarded, on an archive in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from coldstream.archive.events import event_of
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.errors import ConflictError, HeldError, InvalidInputError, NotFoundError
from coldstream.ingest.announcer import Announcer
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.change import Change
from coldstream.manifest.entry import DeletionClaim, Hold, JournalEvent, JournalKind
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.operate.quarantine_end import QuarantineActions
from coldstream.operate.quarantine_retry import RetryOutcome, announce_again, outcome_of, wait_for
from coldstream.operate.quarantined_segments import (
    QuarantinedSegment,
    details_of,
    find_quarantined,
    quarantined_segments,
)
from coldstream.store.clock import TOLERANCE_MS
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import DeleteReport
from coldstream.units import MIB, Offset, TimestampMs
from tests.support.forked_streams import write_history
from tests.support.lifecycle import Clock
from tests.support.segments import STREAM, write_stream

LIFE = STREAM.incarnation


class Bus:
    """Keeps events, and lets the upload function have them when it is asked to."""

    def __init__(self) -> None:
        self.events: list[SegmentRolled] = []

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        event = event_of(json.dumps({"source": source, "detail-type": detail_type, "detail": json.loads(detail)}))
        assert isinstance(event, SegmentRolled)
        self.events.append(event)


class Trouble:
    """An archive in which the second of three segments was damaged on its way, and is in quarantine."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.table, self.objects, self.keys = MemoryTable(), MemoryObjects(clock=self.clock), Keys("here/")
        self.bus = Bus()
        self.announcer = Announcer(self.table, self.objects, self.bus, self.keys)
        self.uploader = Uploader(self.table, self.objects, self.keys, fragment_bytes=20_000, now=self.clock)
        write_stream(directory, chunks=250)
        self.slices = find_rolled(directory)[:3]
        self.sound = self.slices[1].path.read_bytes()
        damaged = bytearray(self.sound)
        damaged[-1] ^= 0xFF
        self.slices[1].path.write_bytes(damaged)
        for number in (0, 2):
            self.upload(number)
        self.upload(1)
        self.first_offset = self.slices[1].first_offset

    def upload(self, number: int) -> None:
        self.uploader.upload(stage(self.slices[number], STREAM, self.objects, self.keys))

    def upload_sound(self) -> None:
        """Have a sound copy of the quarantined segment archived."""
        self.slices[1].path.write_bytes(self.sound)
        self.upload(1)

    def handle_events(self) -> None:
        for event in self.bus.events:
            self.uploader.upload(event)
        self.bus.events = []

    def segment(self) -> QuarantinedSegment:
        return find_quarantined(self.table, STREAM, self.first_offset)

    def actions(self) -> QuarantineActions:
        control = ControlObjects(self.objects, self.keys)
        return QuarantineActions(self.table, self.objects, self.keys, control, self.clock, "an operator")

    @property
    def in_quarantine(self) -> set[str]:
        return {key for key in self.objects.objects if key.startswith("here/quarantine/")}

    def head(self) -> Any:
        head = self.table.head(LIFE)
        assert head is not None
        return head


def last_end(trouble: Trouble) -> JournalEvent:
    """Return the last event that ended a quarantine."""
    kinds = {JournalKind.QUARANTINE_RELEASED, JournalKind.QUARANTINE_DISCARDED}
    return [event for event in trouble.table.journal(LIFE) if event.kind in kinds][-1]


@pytest.fixture
def trouble(tmp_path: Path) -> Trouble:
    return Trouble(tmp_path)


def test_a_segment_in_quarantine_is_listed_with_its_reason(trouble: Trouble) -> None:
    (found,) = quarantined_segments(trouble.table, [STREAM])
    assert found == trouble.segment()
    assert (found.record.first_offset, found.is_archived) == (trouble.first_offset, False)
    assert "CRC" in found.record.reason


def test_an_offset_at_which_none_begins_is_not_found(trouble: Trouble) -> None:
    with pytest.raises(NotFoundError, match="begins at offset"):
        find_quarantined(trouble.table, STREAM, Offset(trouble.first_offset + 1))


def test_the_details_name_the_damage_and_the_copies(trouble: Trouble) -> None:
    details = details_of(trouble.table, trouble.objects, trouble.keys, trouble.segment())
    assert details.damage is not None
    assert trouble.segment().record.key in details.damage
    (copy,) = details.copies
    assert copy.reason == trouble.segment().record.reason
    assert details.archived  # the upload archived what came before the damage
    assert details.contradiction is None


def test_the_details_name_the_first_chunk_that_differs_from_the_archive(tmp_path: Path) -> None:
    table, objects, keys = MemoryTable(), MemoryObjects(), Keys()
    uploader = Uploader(table, objects, keys, fragment_bytes=MIB)
    for directory in (write_history(tmp_path / "ours"), write_history(tmp_path / "theirs", forks_at=9)):
        uploader.upload(stage(find_rolled(directory)[0], STREAM, objects, keys))
    (found,) = quarantined_segments(table, [STREAM])
    details = details_of(table, objects, keys, found)
    assert (found.is_archived, details.damage, len(details.archived)) == (True, None, 1)
    assert details.contradiction is not None
    assert "epoch 1" in details.contradiction
    assert found.record.key in details.contradiction


def test_a_damaged_segment_that_is_tried_again_is_refused_again_and_kept_once(trouble: Trouble) -> None:
    retried = announce_again(trouble.announcer, trouble.segment())
    assert outcome_of(trouble.announcer, retried) is RetryOutcome.ANNOUNCED
    trouble.handle_events()
    assert outcome_of(trouble.announcer, retried) is RetryOutcome.QUARANTINED
    after = trouble.segment().record
    assert trouble.in_quarantine == {after.key, f"{after.key}.json"}


def test_a_segment_that_is_sound_after_all_is_archived_when_it_is_tried_again(trouble: Trouble) -> None:
    """Say, an earlier release refused it; here its object is mended."""
    trouble.objects.objects[trouble.segment().record.key] = trouble.sound
    retried = announce_again(trouble.announcer, trouble.segment())
    outcome = wait_for(trouble.announcer, retried, attempts=2, sleep=trouble.handle_events)
    assert outcome is RetryOutcome.ARCHIVED
    assert trouble.segment().is_archived
    trouble.actions().release(trouble.segment(), delete=True)
    assert trouble.in_quarantine == set()
    assert (trouble.head().quarantined, trouble.head().gaps) == (0, 0)


def test_another_copy_that_is_staged_is_not_replaced(trouble: Trouble) -> None:
    trouble.slices[1].path.write_bytes(trouble.sound)
    staged = stage(trouble.slices[1], STREAM, trouble.objects, trouble.keys)
    with pytest.raises(ConflictError, match="event of its own"):
        announce_again(trouble.announcer, trouble.segment())
    assert trouble.objects.objects[staged.staged_key] == trouble.sound
    assert trouble.objects.uploads(staged.staged_key) == ()
    assert trouble.bus.events == []


def test_trying_twice_stages_one_copy(trouble: Trouble) -> None:
    announce_again(trouble.announcer, trouble.segment())
    announce_again(trouble.announcer, trouble.segment())
    assert trouble.bus.events[0].etag == trouble.bus.events[1].etag
    trouble.handle_events()


def test_what_the_archive_lacks_is_not_released(trouble: Trouble) -> None:
    with pytest.raises(InvalidInputError, match="retry the segment, or discard it"):
        trouble.actions().release(trouble.segment(), delete=False)
    assert trouble.head().quarantined == 1


@pytest.mark.parametrize("delete", [False, True])
def test_a_released_segment_has_no_record_and_a_deleted_one_no_copies(trouble: Trouble, *, delete: bool) -> None:
    trouble.upload_sound()
    record = trouble.segment().record
    report = trouble.actions().release(trouble.segment(), delete=delete)
    assert list(quarantined_segments(trouble.table, [STREAM])) == []
    assert trouble.in_quarantine == (set() if delete else {record.key})
    assert f"{record.key}.json" in report.deleted
    event = last_end(trouble)
    assert (event.kind, event.by, event.key) == (JournalKind.QUARANTINE_RELEASED, "an operator", record.key)


def test_the_gap_of_a_discarded_segment_says_that_it_was_discarded_and_why(trouble: Trouble) -> None:
    record = trouble.segment().record
    trouble.actions().discard(trouble.segment(), why="the disk of node 2 is gone")
    assert trouble.in_quarantine == set()
    (gap,) = trouble.table.gaps(LIFE, 10)
    assert gap.reason == "discarded from quarantine: the disk of node 2 is gone"
    head = trouble.head()
    assert (head.quarantined, head.quarantined_again, head.losses) == (0, 0, 1)
    (note,) = ControlObjects(trouble.objects, trouble.keys).losses(LIFE)
    assert (note.first_offset, note.next_offset) == (record.first_offset, record.next_offset)
    event = last_end(trouble)
    assert (event.kind, event.detail) == (JournalKind.QUARANTINE_DISCARDED, "the disk of node 2 is gone")


def test_nothing_is_lost_by_discarding_what_is_archived(trouble: Trouble) -> None:
    trouble.upload_sound()
    trouble.actions().discard(trouble.segment(), why="damaged")
    assert (trouble.head().losses, trouble.head().gaps, trouble.in_quarantine) == (0, 0, set())


def test_discarding_twice_changes_nothing(trouble: Trouble) -> None:
    segment = trouble.segment()
    trouble.actions().discard(segment, why="damaged")
    revision = trouble.head().revision
    trouble.actions().discard(segment, why="damaged")
    assert trouble.head().revision == revision


def test_nothing_is_discarded_that_a_hold_protects(trouble: Trouble) -> None:
    hold = Hold("case-1", Offset(trouble.first_offset), None, "a lawsuit", "me", TimestampMs(1))
    trouble.table.apply(plan_hold(trouble.head(), hold))
    with pytest.raises(HeldError):
        trouble.actions().discard(trouble.segment(), why="damaged")
    assert trouble.head().quarantined == 1
    assert len(trouble.in_quarantine) == 2


def test_a_hold_that_comes_after_the_record_went_keeps_the_copies(
    trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, apply = trouble.in_quarantine, trouble.table.apply

    def and_hold(change: Change) -> None:
        apply(change)
        if change.event.kind is JournalKind.QUARANTINE_DISCARDED:
            hold = Hold("case-1", trouble.first_offset, None, "a lawsuit", "me", TimestampMs(1))
            apply(plan_hold(trouble.head(), hold))

    monkeypatch.setattr(trouble.table, "apply", and_hold)
    assert trouble.actions().discard(trouble.segment(), why="damaged").deleted == ()
    assert trouble.in_quarantine == kept
    assert not trouble.head().claims


def test_copies_are_deleted_by_a_claim(trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    delete_many = trouble.objects.delete_many
    seen: list[DeletionClaim] = []

    def look(keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
        (claim,) = trouble.head().claims
        assert signed_at == claim.at
        seen.append(claim)
        return delete_many(keys, signed_at=signed_at)

    monkeypatch.setattr(trouble.objects, "delete_many", look)
    segment = trouble.segment()
    trouble.actions().discard(segment, why="damaged")
    assert [(one.first_offset, one.next_offset) for one in seen] == [
        (segment.record.first_offset, segment.record.next_offset)
    ]
    assert not trouble.in_quarantine
    assert not trouble.head().claims


def test_a_copy_that_may_reach_into_a_hold_stays(trouble: Trouble) -> None:
    segment = trouble.segment()
    longer = f"{segment.record.key.removesuffix('.segment')}2.segment"
    trouble.objects.put(longer, b"of a record that is gone, and longer")
    hold = Hold("case-1", segment.record.next_offset, None, "a lawsuit", "me", TimestampMs(1))
    trouble.table.apply(plan_hold(trouble.head(), hold))
    trouble.actions().discard(segment, why="damaged")
    assert trouble.in_quarantine == {longer}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda actions, segment: actions.release(segment, delete=True), id="released"),
        pytest.param(lambda actions, segment: actions.discard(segment, why="damaged"), id="discarded"),
    ],
)
def test_if_another_copy_failed_meanwhile_nothing_is_deleted_and_it_is_a_conflict(
    trouble: Trouble, end: Callable[[QuarantineActions, QuarantinedSegment], object]
) -> None:
    trouble.upload_sound()
    looked_at = trouble.segment()
    other = bytearray(trouble.sound)
    other[-2] ^= 0xFF
    trouble.slices[1].path.write_bytes(other)
    trouble.upload(1)
    before = trouble.in_quarantine
    assert trouble.segment().record.key != looked_at.record.key
    with pytest.raises(ConflictError, match="look at the segment again"):
        end(trouble.actions(), looked_at)
    assert trouble.in_quarantine == before
    assert trouble.head().quarantined == 1
    trouble.actions().release(trouble.segment(), delete=True)
    assert trouble.in_quarantine == set()


@pytest.mark.parametrize("is_other", [False, True])
def test_a_copy_that_an_upload_is_about_to_record_stays(
    trouble: Trouble, monkeypatch: pytest.MonkeyPatch, *, is_other: bool
) -> None:
    """Nobody else has these bytes: the upload deletes the staged copy, and the agent its pin."""
    if is_other:
        trouble.slices[1].path.write_bytes(trouble.sound[:-1] + bytes([trouble.sound[-1] ^ 1]))
    else:
        announce_again(trouble.announcer, trouble.segment())
    segment, copy = trouble.segment(), trouble.objects.copy
    trouble.clock.pass_ms(2 * TOLERANCE_MS)

    def copy_and_wait(source_key: str, target_key: str, *, if_match: str) -> None:
        copy(source_key, target_key, if_match=if_match)
        trouble.actions().discard(segment, why="damaged")

    monkeypatch.setattr(trouble.objects, "copy", copy_and_wait)
    trouble.handle_events()
    if is_other:
        trouble.upload(1)
    record = trouble.segment().record
    assert (record.key != segment.record.key) is is_other
    assert trouble.in_quarantine == {record.key, f"{record.key}.json"}


def test_what_was_removed_while_it_was_discarded_is_not_lost(trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    segment, end = trouble.segment(), trouble.segment().record.next_offset
    log = trouble.table.log_from_offset(LIFE, Offset(0), 1000).entries
    # The gap of the segment goes with the entry after it.
    *removed, following = log[: 2 + next(number for number, entry in enumerate(log) if entry.first_offset >= end)]
    apply, attempts = trouble.table.apply, count(1)

    def late(change: Change) -> None:
        """Have the floor rise past the segment before the first attempt."""
        if next(attempts) == 1:
            head, gaps, at = trouble.head(), trouble.table.gaps(LIFE, 100), TimestampMs(1)
            apply(plan_prefix_removal(head, removed, following, gaps, (), at=at, due_at=at, why="age", by=None))
        apply(change)

    monkeypatch.setattr(trouble.table, "apply", late)
    trouble.actions().discard(segment, why="damaged")
    after = trouble.head()
    assert after.floor >= end
    assert (after.quarantined, after.losses, trouble.in_quarantine) == (0, 0, set())
    # The first attempt told the bucket of a loss before its change, as it must; the second has none to tell.
    (note,) = ControlObjects(trouble.objects, trouble.keys).losses(LIFE)
    assert (note.first_offset, note.next_offset) == (segment.record.first_offset, end)
