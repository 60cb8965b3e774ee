"""One commit among others: lost races, answers that never came, and whose object may be deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coldstream.compact.commit import CommitOutcome, _check_covers, commit
from coldstream.errors import ColdstreamError, LostRaceError, OutcomeUnknownError, UnavailableError
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.commit import Change
from coldstream.manifest.deletion import plan_delete
from coldstream.manifest.entry import Encoding, FragmentEntry, Head, Hold, JournalKind
from coldstream.manifest.fence import plan_fence
from coldstream.manifest.groups import Group
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.removal import plan_prefix_removal
from coldstream.manifest.stream import Incarnation
from coldstream.store.grace import LONGEST_GRACE_MS
from coldstream.store.log import iter_log
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.store.races import MAX_ATTEMPTS
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.changes import change_to
from tests.support.compacting import LONG_AFTER, assert_right, log_of
from tests.support.compaction import Compaction

INCARNATION = STREAM.incarnation


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.store.races.FIRST_DELAY_S", 0)


class Table(MemoryTable):
    """A table whose answers to `apply` are changed: `before` and `after` are called around it, with its number."""

    def __init__(self) -> None:
        super().__init__()
        self.applied = 0
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None
        self.on_head: Callable[[int], None] = lambda _: None
        self.shown_once: LogPage | None = None

    def head(self, incarnation: Incarnation) -> Head | None:
        self.on_head(self.applied)
        return super().head(incarnation)

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        page = super().log_from_offset(incarnation, offset, limit)
        if self.applied and self.shown_once is not None:
            page, self.shown_once = self.shown_once, None
        return page

    def apply(self, change: Change) -> None:
        self.applied += 1
        number = self.applied
        self.before(number)
        super().apply(change)
        self.after(number)


class Case:
    """An archive of fragments of one chunk, and a merged object of some of them, not committed yet."""

    def __init__(self, fragments: int = 12) -> None:
        self.archive = ChunkArchive()
        self.table = Table()
        self.archive.table = self.table
        self.objects = self.archive.objects
        for number in range(fragments):
            self.archive.add(number * 2, steady(2, number))
        self.group = Group(log_of(self.table, INCARNATION))
        self.merged = Compaction(self.archive).store(self.group, Encoding.IDENTITY)
        self.table.applied = 0

    def commit(self) -> CommitOutcome:
        return commit(self.table, INCARNATION, self.group, self.merged, now=lambda: NOW)

    def commit_another(self, entries: slice) -> FragmentEntry:
        """Have another compaction commit a group of some of the log's entries, in another object."""
        before, self.table.before = self.table.before, lambda _: None
        after, self.table.after = self.table.after, lambda _: None
        group = Group(log_of(self.table, INCARNATION)[entries])
        merged = Compaction(self.archive).store(group, Encoding.IDENTITY)
        assert commit(self.table, INCARNATION, group, merged, now=lambda: NOW) is CommitOutcome.COMMITTED
        self.table.before, self.table.after = before, after
        return merged

    def remove(self, entries: int) -> None:
        """Remove the first entries of the log."""
        log, head = log_of(self.table, INCARNATION), self.table.head(INCARNATION)
        assert head is not None
        removed, following = log[:entries], log[entries]
        self.table.apply(
            plan_prefix_removal(head, removed, following, (), (), at=NOW, due_at=NOW, why="retention", by=None)
        )

    def assert_discarded(self) -> None:
        """The merged object has a tombstone, and can never be committed."""
        head = self.table.head(INCARNATION)
        assert head is not None
        assert head.generation > self.merged.generation
        assert self.merged.key in {one.key for one in self.table.tombstones(INCARNATION, LONG_AFTER, 100)}
        assert self.merged.key not in {entry.key for entry in log_of(self.table, INCARNATION)}

    def assert_right(self) -> None:
        assert_right(self.archive, self.archive.chunks)


def raising(err: ColdstreamError, *numbers: int) -> Callable[[int], None]:
    def act(number: int) -> None:
        if number in numbers:
            raise err

    return act


UNKNOWN = OutcomeUnknownError("no answer came")
LOST = LostRaceError("somebody else was first")


def test_the_merged_entry_is_alone_afterwards_and_what_it_replaces_is_tombstoned_for_the_time_of_grace() -> None:
    case = Case()
    assert case.commit() is CommitOutcome.COMMITTED
    (entry,) = log_of(case.table, INCARNATION)
    assert entry == case.merged
    due = TimestampMs(NOW + LONGEST_GRACE_MS)
    assert not case.table.tombstones(INCARNATION, TimestampMs(due - 1), 100)
    assert {one.key for one in case.table.tombstones(INCARNATION, due, 100)} == {one.key for one in case.group.entries}
    kinds = [event.kind for event in case.table.journal(INCARNATION) if event.key == case.merged.key]
    assert kinds[0] is JournalKind.FRAGMENTS_COMPACTED
    assert set(kinds[1:]) <= {JournalKind.COMPACTION_CONTINUED}
    assert case.table.applied == 1 + 2  # the last and three others, then eight
    case.assert_right()


def test_the_time_of_grace_is_the_callers() -> None:
    case = Case()
    commit(case.table, INCARNATION, case.group, case.merged, now=lambda: NOW, grace_ms=5)
    assert not case.table.tombstones(INCARNATION, TimestampMs(NOW + 4), 100)
    assert len(case.table.tombstones(INCARNATION, TimestampMs(NOW + 5), 100)) == len(case.group.entries)


def test_more_entries_than_a_page_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iter_log, "__defaults__", (5,))
    case = Case(23)
    assert case.commit() is CommitOutcome.COMMITTED
    assert log_of(case.table, INCARNATION) == (case.merged,)
    case.assert_right()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lost_race_is_run_again(number: int) -> None:
    case = Case()
    case.table.before = raising(LOST, number)
    assert case.commit() is CommitOutcome.COMMITTED
    case.assert_right()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_answer_that_never_came_is_looked_for(number: int, moment: str) -> None:
    case = Case()
    setattr(case.table, moment, raising(UNKNOWN, number))
    assert case.commit() is CommitOutcome.COMMITTED
    assert log_of(case.table, INCARNATION) == (case.merged,)
    case.assert_right()


def test_a_commit_whose_answer_never_came_is_not_told_to_be_superseded_while_half_of_it_shows() -> None:
    case = Case(3)
    first, _, last = case.group.entries
    case.table.shown_once = LogPage((first, last), None)
    case.table.after = raising(UNKNOWN, 1)
    assert case.commit() is CommitOutcome.COMMITTED
    assert case.table.shown_once is None
    assert log_of(case.table, INCARNATION) == (case.merged,)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_upload_that_commits_meanwhile_is_kept(number: int) -> None:
    case = Case()
    entry = case.archive.put(24, steady(1, 1))

    def upload(at: int) -> None:
        if at == number:
            case.table.before = lambda _: None
            case.archive.commit(entry)

    case.table.before = upload
    assert case.commit() is CommitOutcome.COMMITTED
    assert [one.key for one in log_of(case.table, INCARNATION)] == [case.merged.key, entry.key]
    case.assert_right()


@pytest.mark.parametrize("entries", [slice(0, 12), slice(0, 3), slice(4, 9), slice(8, 12)])
def test_a_group_that_another_compaction_took_is_superseded_and_its_object_discarded(entries: slice) -> None:
    case = Case()
    another = case.commit_another(entries)
    assert case.commit() is CommitOutcome.SUPERSEDED
    case.assert_discarded()
    assert another.key in {entry.key for entry in log_of(case.table, INCARNATION)}
    case.assert_right()


def test_what_another_compaction_left_is_finished_first() -> None:
    case = Case(20)
    groups = Group(case.group.entries[:9]), Group(case.group.entries[9:])
    first, second = (Compaction(case.archive).store(group, Encoding.IDENTITY) for group in groups)
    case.table.before = raising(UnavailableError("down"), 2)
    with pytest.raises(UnavailableError):
        commit(case.table, INCARNATION, groups[0], first, now=lambda: NOW)
    assert case.table.head(INCARNATION).compacting == first.next_offset  # type: ignore[union-attr]
    outcome = commit(case.table, INCARNATION, groups[1], second, now=lambda: NOW)
    assert outcome is CommitOutcome.COMMITTED
    assert [one.key for one in log_of(case.table, INCARNATION)] == [first.key, second.key]
    case.assert_right()


def test_two_may_finish_the_same_at_once() -> None:
    case = Case()

    def other(number: int) -> None:
        if number == 2:
            case.table.before = lambda _: None
            finish(case.table, INCARNATION, lambda: NOW)

    case.table.before = other
    assert case.commit() is CommitOutcome.COMMITTED
    case.assert_right()


def test_one_that_committed_and_was_merged_again_before_it_heard_of_that_is_not_deleted() -> None:
    case = Case()

    def merged_again(number: int) -> None:
        if number == 1:
            case.archive.add(24, steady(2, 99))
            finish(case.table, INCARNATION, lambda: NOW)
            case.commit_another(slice(0, 2))
            raise UNKNOWN

    case.table.after = merged_again
    assert case.commit() is CommitOutcome.SUPERSEDED
    assert case.merged.key in case.objects.objects
    assert case.merged.key in {one.key for one in case.table.tombstones(INCARNATION, LONG_AFTER, 100)}
    case.assert_right()


def test_an_object_is_discarded_when_its_commit_cannot_even_begin() -> None:
    case = Case()
    asked = []

    def once(_: int) -> None:
        asked.append(1)
        if len(asked) == 1:
            raise UnavailableError("down")

    case.table.on_head = once
    with pytest.raises(UnavailableError):
        case.commit()
    case.assert_discarded()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_object_is_left_alone_while_nobody_knows_whether_it_is_named(moment: str) -> None:
    case = Case()
    setattr(case.table, moment, raising(UNKNOWN, 1))
    case.table.on_head = raising(UnavailableError("down"), 1)
    with pytest.raises(UnavailableError):
        case.commit()
    assert case.merged.key in case.objects.objects
    assert not case.table.tombstones(INCARNATION, LONG_AFTER, 100) or moment == "after"


def test_an_object_that_is_named_is_not_discarded_though_no_answer_came() -> None:
    case = Case()
    case.table.after = raising(UNKNOWN, 1)
    asked = []

    def then_down(applied: int) -> None:
        if applied == 1:
            asked.append(1)
            if len(asked) == 1:
                raise UnavailableError("down")

    case.table.on_head = then_down
    with pytest.raises(UnavailableError):
        case.commit()
    assert case.merged.key in {entry.key for entry in log_of(case.table, INCARNATION)}
    assert case.merged.key not in {one.key for one in case.table.tombstones(INCARNATION, LONG_AFTER, 100)}


def test_who_always_loses_gives_up_and_discards_its_object() -> None:
    case = Case()
    case.table.before = raising(LOST, *range(1, MAX_ATTEMPTS + 1))
    with pytest.raises(LostRaceError):
        case.commit()
    assert case.table.applied == MAX_ATTEMPTS + 1
    case.assert_discarded()


def test_an_object_whose_key_was_fenced_off_is_superseded_and_discarded() -> None:
    case = Case()
    head = case.table.head(INCARNATION)
    assert head is not None
    case.table.apply(plan_fence(head, case.merged.generation + 1, NOW))
    assert case.commit() is CommitOutcome.SUPERSEDED
    case.assert_discarded()
    case.assert_right()


def test_nothing_of_a_deleted_stream_is_committed() -> None:
    case = Case()
    head = case.table.head(INCARNATION)
    assert head is not None
    case.table.apply(plan_delete(head, NOW, NOW, "an operator"))
    assert case.commit() is CommitOutcome.SUPERSEDED
    assert log_of(case.table, INCARNATION) == case.group.entries
    case.assert_discarded()


def test_a_group_of_which_some_was_removed_is_superseded() -> None:
    case = Case()
    case.remove(3)
    assert case.commit() is CommitOutcome.SUPERSEDED
    assert log_of(case.table, INCARNATION)[0].first_offset == 6
    case.assert_discarded()


@pytest.mark.parametrize(("first", "following"), [(0, 2), (10, 11), (22, None)])
def test_a_group_of_which_some_is_held_is_superseded(first: int, following: int | None) -> None:
    case = Case()
    head = case.table.head(INCARNATION)
    assert head is not None
    end = None if following is None else Offset(following)
    case.table.apply(plan_hold(head, Hold("case-7", Offset(first), end, "a lawsuit", "legal", NOW)))
    assert case.commit() is CommitOutcome.SUPERSEDED
    assert log_of(case.table, INCARNATION) == case.group.entries
    case.assert_discarded()


def test_after_one_was_superseded_the_next_commits_at_a_later_key() -> None:
    case = Case()
    case.commit_another(slice(0, 12))
    assert case.commit() is CommitOutcome.SUPERSEDED
    case.archive.add(24, steady(2, 99))
    group = Group(log_of(case.table, INCARNATION))
    merged = Compaction(case.archive).store(group, Encoding.IDENTITY)
    assert commit(case.table, INCARNATION, group, merged, now=lambda: NOW) is CommitOutcome.COMMITTED
    case.assert_right()


def test_a_race_lost_now_and_then_does_not_end_a_long_removal() -> None:
    case = Case(200)
    case.table.before = raising(LOST, *range(3, 200, 2))
    assert case.commit() is CommitOutcome.COMMITTED
    assert case.table.applied > 2 * MAX_ATTEMPTS
    case.assert_right()


def test_finishing_where_nothing_was_begun_costs_one_request() -> None:
    case = Case()
    before = case.table.requests.total()
    finish(case.table, INCARNATION, lambda: NOW)
    finish(case.table, Incarnation("__unknown_1"), lambda: NOW)
    assert case.table.requests.total() == before + 2


def test_a_head_that_the_log_contradicts_is_an_error_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.store.races.MAX_ATTEMPTS", 2)
    case = Case()
    head = case.table.head(INCARNATION)
    assert head is not None
    case.table.apply(change_to(replace(head, revision=head.revision + 1, compacting=Offset(24))))
    with pytest.raises(LostRaceError):
        finish(case.table, INCARNATION, lambda: NOW)
    assert log_of(case.table, INCARNATION) == case.group.entries


def test_a_stream_that_is_not_there_takes_no_entry() -> None:
    archive = ChunkArchive()
    for number in range(2):
        archive.add(number * 2, steady(2, number))
    group = Group(log_of(archive.table, INCARNATION))
    merged = Compaction(archive).store(group, Encoding.IDENTITY)
    assert commit(MemoryTable(), INCARNATION, group, merged, now=lambda: NOW) is CommitOutcome.SUPERSEDED


@pytest.mark.parametrize("shown", [slice(0, 0), slice(1, None), slice(0, -1)])
def test_entries_that_leave_offsets_of_the_group_out_are_half_of_a_change(shown: slice) -> None:
    archive = ChunkArchive()
    for number in range(3):
        archive.add(number * 2, steady(2, number))
    log = log_of(archive.table, INCARNATION)
    _check_covers(log, Group(log))
    with pytest.raises(LostRaceError, match="offsets 0 to 6 show half of a change"):
        _check_covers(log[shown], Group(log))
