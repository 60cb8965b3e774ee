"""Attaching while the table shows less than all: the index by time lags, and commits are half visible."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.format.chunk import ChunkType
from coldstream.manifest.change import Change, ReplaceEntry
from coldstream.manifest.entry import Encoding, FragmentEntry, Gap, Head
from coldstream.manifest.groups import Group
from coldstream.manifest.spec import FIRST, LAST, AtOffset, AtTimestamp
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import Incarnation
from coldstream.resolve.answer import Bounds
from coldstream.resolve.attach import Attachment, attach
from coldstream.resolve.places import exact_place
from coldstream.resolve.resolve import ResolveRequest, resolve
from coldstream.resolve.tail import Tail
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.units import Offset, TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, Spec, holes, random_archive, steady
from tests.support.compaction import Compaction


class LaggingTable(MemoryTable):
    """A table whose index by time shows each item as it was after some other of the last few changes."""

    def __init__(self, rng: random.Random, changes_behind: int) -> None:
        super().__init__()
        self._rng = rng
        self._changes_behind = changes_behind
        self.history: list[ManifestState] = [ManifestState()]

    def apply(self, change: Change) -> None:
        super().apply(change)
        self.history.append(self._partitions[change.head.stream.incarnation])

    @property
    def visible(self) -> list[ManifestState]:
        return self.history[-1 - self._changes_behind :]

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        self.requests["Query"] += 1
        shown: list[FragmentEntry] = []
        for next_offset in self.history[-1].entries:
            entry = self._rng.choice(self.visible).entries.get(next_offset)
            if entry is not None and entry.running_timestamp >= timestamp:
                shown.append(entry)
        shown.sort(key=lambda entry: (entry.running_timestamp, entry.next_offset))
        head = self._rng.choice(self.visible).head
        return LogPage(tuple(shown[:limit]), head if len(shown) <= limit else None)


def whole_answer(archive: ChunkArchive, state: ManifestState, timestamp: int) -> object:
    """Return what a walk of every chunk in a state of the manifest finds: a chunk id, a gap, or the tail."""
    keys = {entry.key for entry in state.entries.values()}
    chunks = [chunk for chunk in archive.chunks if chunk.key in keys]
    if not chunks:
        return "nothing"
    for chunk in chunks:
        if chunk.header.timestamp >= timestamp:
            hole = next((hole for hole in holes(chunks) if hole[1] == chunk.header.chunk_id), None)
            return int(chunk.header.chunk_id) if hole is None else hole
    return "tail", int(chunks[-1].header.next_offset)


def found_answer(archive: ChunkArchive, table: MemoryTable, timestamp: int, limit: int) -> object:
    spec = AtTimestamp(TimestampMs(timestamp))
    try:
        found = attach(table, STREAM, spec, limit)
    except StreamNotFoundError:
        return "nothing"
    match found:
        case Attachment():
            return int(exact_place(archive.objects, found.entries[0], spec).chunk_id)
        case Gap():
            return int(found.first_offset), int(found.next_offset)
        case Tail(next_offset):
            return "tail", int(next_offset)


@pytest.mark.parametrize("seed", range(200))
def test_an_index_that_lags_makes_no_answer_wrong(seed: int) -> None:
    rng = random.Random(seed)
    archive = random_archive(rng, disorder=0.9)
    entries = list(archive.table._partitions[STREAM.incarnation].entries.values())
    rng.shuffle(entries)
    archive.table = table = LaggingTable(rng, changes_behind=rng.randrange(1, 4))
    times = [chunk.header.timestamp for chunk in archive.chunks]
    for entry in entries:
        archive.commit(replace(entry, prior_offset=None, prior_timestamp=None))
        for timestamp in range(min(times) - 1, max(times) + 2):
            right = whole_answer(archive, table.history[-1], timestamp)
            assert found_answer(archive, table, timestamp, rng.randrange(1, 6)) == right


class ShownTable(MemoryTable):
    """A table whose index by time shows given entries."""

    shown = LogPage((), None)

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        self.requests["Query"] += 1
        return self.shown

    def log(self) -> tuple[FragmentEntry, ...]:
        return self.log_from_offset(STREAM.incarnation, Offset(0), 1000).entries


def shown_archive(*fragments: tuple[int, int]) -> tuple[ChunkArchive, ShownTable]:
    """Archive two chunks of five records at each first offset, from each time on."""
    archive = ChunkArchive()
    archive.table = table = ShownTable()
    for first, at in fragments:
        archive.add(first, steady(5, at, at + 1))
    return archive, table


def attached(table: ShownTable, timestamp: int) -> Attachment:
    table.requests.clear()
    found = attach(table, STREAM, AtTimestamp(TimestampMs(timestamp)), 10)
    assert isinstance(found, Attachment)
    return found


def test_an_entry_that_the_index_does_not_show_yet_is_found_all_the_same() -> None:
    _, table = shown_archive((0, 0), (10, 20), (20, 30))
    table.shown = LogPage(table.log()[2:], table.head(STREAM.incarnation))
    assert attached(table, 15).entries[0].first_offset == 10
    assert table.requests == {"Query": 4}


def test_a_last_entry_that_the_index_does_not_show_yet_is_found_all_the_same() -> None:
    _, table = shown_archive((0, 0), (10, 20))
    table.shown = LogPage((), table.head(STREAM.incarnation))
    assert attached(table, 15).entries[0].first_offset == 10


def test_a_stream_that_the_index_does_not_know_yet_is_found() -> None:
    _, table = shown_archive((0, 10))
    assert attached(table, 5).entries[0].first_offset == 0


def test_entries_that_the_index_has_out_of_order_are_taken_in_the_order_of_the_log() -> None:
    _, table = shown_archive((0, 30), (10, 20))
    first, second = table.log()
    # The second, as it was before the first came: its running timestamp is the lesser, and it sorts before it.
    table.shown = LogPage((replace(second, prior_offset=None, prior_timestamp=None), first), None)
    assert attached(table, 15).entries[0] == first


def test_a_hole_that_only_the_index_has_is_no_gap() -> None:
    _, table = shown_archive((0, 0), (10, 20), (20, 30))
    first, second, third = table.log()
    table.shown = LogPage((replace(third, prior_offset=first.next_offset, prior_timestamp=TimestampMs(1)),), None)
    assert attached(table, 15).entries[0] == second


def test_timestamps_raised_for_an_entry_that_never_came_do_not_hide_later_ones() -> None:
    archive, table = shown_archive((0, 0), (10, 2))
    entries = table._partitions[STREAM.incarnation].entries
    entries[Offset(20)] = replace(entries[Offset(20)], prior_timestamp=TimestampMs(50))
    archive.add(20, steady(5, 60, 61))
    table.shown = LogPage(table.log()[1:2], table.head(STREAM.incarnation))
    assert attached(table, 40).entries[0].first_offset == 20


class TornTable(MemoryTable):
    """A table that shows a page as half of a commit left it, a number of times, and then whole."""

    def __init__(self, torn: int, *, without: Offset) -> None:
        super().__init__()
        self.torn = torn
        self._without = without

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        page = super().log_from_offset(incarnation, offset, limit)
        if self.torn == 0:
            return page
        self.torn -= 1
        return LogPage(tuple(entry for entry in page.entries if entry.next_offset != self._without), page.head)


@pytest.mark.parametrize("torn", [1, 2])
def test_a_tail_that_is_ahead_of_the_entries_is_read_again(torn: int) -> None:
    archive = ChunkArchive()
    archive.table = table = TornTable(0, without=Offset(20))
    archive.add(0, steady(5, 0, 1))
    archive.add(10, steady(5, 2, 3))
    table.torn = torn
    found = attach(table, STREAM, AtOffset(Offset(12)), 10)
    assert isinstance(found, Attachment)
    assert found.entries[0].first_offset == 10


def test_a_page_that_ends_before_the_tail_does_not_claim_to_have_reached_it() -> None:
    archive = ChunkArchive()
    archive.table = table = TornTable(0, without=Offset(20))
    archive.add(0, steady(5, 0, 1))
    archive.add(10, steady(5, 2, 3))
    table.torn = 1
    found = attach(table, STREAM, FIRST, 10)
    assert isinstance(found, Attachment)
    assert [entry.next_offset for entry in found.entries] == [10]
    assert (found.head and found.head.next_offset) == 20


def test_a_link_to_an_entry_that_is_not_there_is_read_again_and_is_no_gap() -> None:
    archive = ChunkArchive()
    archive.table = table = TornTable(0, without=Offset(20))
    for first in (0, 10, 20):
        archive.add(first, steady(5, first, first + 1))
    table.torn = 1
    found = attach(table, STREAM, AtOffset(Offset(12)), 10)
    assert isinstance(found, Attachment)
    assert found.entries[0].first_offset == 10


class HalfCompactedTable(MemoryTable):
    """A table that a number of times shows only the removals of a compaction's first change."""

    torn = 0
    lags = False
    """Whether the index by time shows the entries from before the compaction, without those that it removed."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[Offset, FragmentEntry] = {}

    def apply(self, change: Change) -> None:
        incarnation = change.head.stream.incarnation
        if change.of(ReplaceEntry):
            self._before = dict(self._partitions[incarnation].entries)
        super().apply(change)

    def _shown(self, entries: tuple[FragmentEntry, ...]) -> tuple[FragmentEntry, ...]:
        if self.torn == 0:
            return entries
        self.torn -= 1
        return tuple(self._before.get(entry.next_offset, entry) for entry in entries)

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        page = super().log_from_offset(incarnation, offset, limit)
        return replace(page, entries=self._shown(page.entries))

    def log_from_timestamp(self, incarnation: Incarnation, timestamp: TimestampMs, limit: int) -> LogPage:
        page = super().log_from_timestamp(incarnation, timestamp, limit)
        if not self.lags:
            return page
        return replace(page, entries=tuple(self._before[entry.next_offset] for entry in page.entries))

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> tuple[FragmentEntry, ...]:
        return self._shown(super().log_before(incarnation, offset, limit))

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        page = super().log_end(incarnation, limit)
        return replace(page, entries=self._shown(page.entries))


def half_compacted(last: ChunkType = ChunkType.USER) -> tuple[ChunkArchive, HalfCompactedTable]:
    """Make six fragments of one chunk, at times 0 to 50, the last of a given type; the first two are left."""
    archive = ChunkArchive()
    archive.table = table = HalfCompactedTable()
    for number in range(6):
        kind = last if number == 5 else ChunkType.USER
        archive.add(5 * number, [Spec(5, 10 * number, kind), Spec(5, 10 * number + 5, kind)][: 1 + (number == 5)])
    compaction = Compaction(archive)
    group = Group(compaction.log())
    next(compaction.replace(group, compaction.store(group, Encoding.IDENTITY)))
    assert [entry.next_offset for entry in compaction.log()] == [5, 10, 35]
    return archive, table


@pytest.mark.parametrize("torn", [0, 1, 2])
def test_an_offset_in_a_half_visible_compaction_is_looked_for_again(torn: int) -> None:
    archive, table = half_compacted()
    for offset in range(10, 35):
        table.torn = torn
        found = attach(table, STREAM, AtOffset(Offset(offset)), 10)
        assert isinstance(found, Attachment)
        assert found.entries[0].first_offset <= offset
        at = exact_place(archive.objects, found.entries[0], AtOffset(Offset(offset)))
        assert at.chunk_id == offset // 5 * 5


@pytest.mark.parametrize("torn", [0, 1, 2])
def test_a_page_ends_where_half_of_a_compaction_shows(torn: int) -> None:
    archive, table = half_compacted()
    table.torn = torn
    found = attach(table, STREAM, FIRST, 10)
    assert isinstance(found, Attachment)
    assert [entry.next_offset for entry in found.entries] == ([5, 10] if torn else [5, 10, 35])
    assert (found.head and found.head.next_offset) == (None if torn else 35)
    answer = resolve(ResolveRequest(STREAM, FIRST, Bounds()), table, archive.objects, now=NOW, url_expiry_s=60)
    assert answer.gap is None


@pytest.mark.parametrize("torn", [0, 1, 2])
@pytest.mark.parametrize("limit", [1, 2, 10])
@pytest.mark.parametrize("lags", [False, True])
def test_a_time_in_a_half_visible_compaction_is_looked_for_again(torn: int, limit: int, *, lags: bool) -> None:
    archive, table = half_compacted()
    for timestamp in range(1, 56):
        table.torn, table.lags = torn, lags
        found = attach(table, STREAM, AtTimestamp(TimestampMs(timestamp)), limit)
        assert isinstance(found, Attachment)
        at = exact_place(archive.objects, found.entries[0], AtTimestamp(TimestampMs(timestamp)))
        assert at.timestamp == (55 if timestamp > 50 else -(-timestamp // 10) * 10)


@pytest.mark.parametrize("torn", [0, 1, 2])
def test_the_last_user_chunk_is_not_passed_over_with_entries_that_a_compaction_removed(torn: int) -> None:
    _, table = half_compacted(ChunkType.TRACKING_DELTA)
    table.torn = torn
    found = attach(table, STREAM, LAST, 10)
    assert isinstance(found, Attachment)
    assert found.start.chunk_id == 20
    table.torn = 100
    with pytest.raises(UnavailableError, match="being changed"):
        attach(table, STREAM, LAST, 10)


def test_a_manifest_that_never_shows_whole_is_unavailable() -> None:
    archive = ChunkArchive()
    archive.table = table = TornTable(0, without=Offset(20))
    archive.add(0, steady(5, 0, 1))
    archive.add(10, steady(5, 2, 3))
    table.torn = 100
    with pytest.raises(UnavailableError, match="being changed"):
        attach(table, STREAM, AtOffset(Offset(12)), 10)


class OldHeadTable(MemoryTable):
    """A table that shows the head as it once was, with entries that came later."""

    old: Head | None = None

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        page = super().log_from_offset(incarnation, offset, limit)
        return page if self.old is None or page.head is None else LogPage(page.entries, self.old)


def test_a_head_older_than_the_entries_is_no_tail_because_more_may_follow_them() -> None:
    archive = ChunkArchive()
    archive.table = table = OldHeadTable()
    archive.add(0, steady(5, 0, 1))
    table.old = table.head(STREAM.incarnation)
    archive.add(10, steady(5, 10, 11))
    answer = resolve(ResolveRequest(STREAM, FIRST, Bounds()), table, archive.objects, now=NOW, url_expiry_s=60)
    assert [part.first_offset for part in answer.ranges] == [0, 10]
    assert answer.tail is None
    assert answer.cursor is not None


def test_a_time_after_the_entries_that_the_index_shows_is_looked_for_in_the_table() -> None:
    archive, table = shown_archive((0, 0), (10, 10))
    old = table.head(STREAM.incarnation)
    archive.add(30, steady(5, 30, 31))
    archive.add(20, steady(5, 20, 21))
    table._partitions[STREAM.incarnation].entries[Offset(30)] = replace(table.log()[2], prior_timestamp=TimestampMs(25))
    table.shown = LogPage(table.log()[2:3], old)
    assert attached(table, 25).entries[0].first_offset == 30
