"""The iter_settled of a log, and the groups it gives."""

from __future__ import annotations

from itertools import islice

import pytest

from coldstream.compact.plan import find_groups, iter_settled
from coldstream.errors import LostRaceError
from coldstream.manifest.entry import Encoding, StorageClass
from coldstream.manifest.groups import CompactionPolicy, Group
from coldstream.manifest.stream import Incarnation
from coldstream.store.log import iter_log
from coldstream.units import TimestampMs
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.compacting import log_of
from tests.support.compaction import Compaction
from tests.support.removing import delete, move_to_class, put_hold, undelete

INCARNATION = STREAM.incarnation
LATE = TimestampMs(1 << 40)


def archive_of(fragments: int) -> ChunkArchive:
    archive = ChunkArchive()
    for number in range(fragments):
        archive.add(number, steady(1, number))
    return archive


@pytest.mark.parametrize("fragments", [1, 4, 5, 6, 10, 11])
def test_pages_are_walked_to_the_end(monkeypatch: pytest.MonkeyPatch, fragments: int) -> None:
    monkeypatch.setattr(iter_log, "__defaults__", (5,))
    archive = archive_of(fragments)
    assert tuple(iter_settled(archive.table, INCARNATION)) == log_of(archive.table, INCARNATION)


def test_a_stream_that_is_not_there_has_nothing() -> None:
    assert not list(iter_settled(ChunkArchive().table, Incarnation("__unknown_1")))


def test_pages_are_read_as_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iter_log, "__defaults__", (5,))
    archive = archive_of(100)
    archive.table.requests.clear()
    list(islice(iter_settled(archive.table, INCARNATION), 5))
    assert archive.table.requests == {"GetItem": 1, "Query": 1}


def test_what_an_unfinished_compaction_is_to_remove_is_not_walked() -> None:
    archive = archive_of(20)
    compaction = Compaction(archive)
    group = Group(log_of(archive.table, INCARNATION)[2:18])
    merged = compaction.store(group, Encoding.IDENTITY)
    steps = compaction.replace(group, merged)
    ends = [2, *range(18, 21)]
    for _ in steps:
        assert [entry.next_offset for entry in iter_settled(archive.table, INCARNATION)] == [1, *ends]
    assert len(log_of(archive.table, INCARNATION)) == 5


def test_what_was_unfinished_when_the_walk_began_and_was_merged_again_by_then_is_walked_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = archive_of(20)
    compaction = Compaction(archive)
    inner = Group(log_of(archive.table, INCARNATION)[2:18])
    steps = compaction.replace(inner, compaction.store(inner, Encoding.IDENTITY))
    next(steps)
    unfinished = archive.table.head(INCARNATION)
    assert unfinished is not None
    assert unfinished.compacting == 18
    list(steps)
    everything = Group(log_of(archive.table, INCARNATION))
    list(compaction.replace(everything, compaction.store(everything, Encoding.IDENTITY)))
    monkeypatch.setattr(archive.table, "head", lambda _: unfinished)
    found = tuple(iter_settled(archive.table, INCARNATION))
    assert [(entry.first_offset, entry.next_offset) for entry in found] == [(0, 20)]


def test_what_is_committed_while_the_walk_goes_on_is_not_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iter_log, "__defaults__", (5,))
    archive = archive_of(30)
    data_bytes = log_of(archive.table, INCARNATION)[0].data_bytes
    compaction = Compaction(archive)
    found = []
    for group in find_groups(archive.table, INCARNATION, CompactionPolicy(LATE, 3 * data_bytes)):
        found.append((group.first_offset, group.next_offset))
        for _ in compaction.replace(group, compaction.store(group, Encoding.IDENTITY)):
            pass
    assert found == [(first, first + 3) for first in range(0, 30, 3)]


def spans(archive: ChunkArchive) -> list[tuple[int, int]]:
    groups = find_groups(archive.table, INCARNATION, CompactionPolicy(LATE, 1 << 30))
    return [(group.first_offset, group.next_offset) for group in groups]


def test_a_deleted_stream_has_no_groups_until_that_is_undone() -> None:
    archive = archive_of(6)
    delete(archive.table, INCARNATION)
    assert spans(archive) == []
    undelete(archive.table, INCARNATION)
    assert spans(archive) == [(0, 6)]


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [(4, 6, [(0, 4), (6, 12)]), (9, None, [(0, 9)]), (0, None, []), (12, None, [(0, 12)]), (0, 3, [(3, 12)])],
)
def test_what_a_hold_protects_is_in_no_group(
    first: int, following: int | None, expected: list[tuple[int, int]]
) -> None:
    archive = archive_of(12)
    put_hold(archive.table, INCARNATION, first, following)
    assert spans(archive) == expected


def test_holds_that_do_not_all_show_are_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_of(6)
    put_hold(archive.table, INCARNATION, 0, 2)
    monkeypatch.setattr(archive.table, "holds", lambda _: ())
    with pytest.raises(LostRaceError):
        spans(archive)


def test_what_was_moved_to_a_colder_class_is_left_there() -> None:
    archive = archive_of(9)
    for number, storage_class in ((3, StorageClass.GLACIER_IR), (4, StorageClass.DEEP_ARCHIVE)):
        move_to_class(archive.table, INCARNATION, number, storage_class)
    assert spans(archive) == [(0, 3), (5, 9)]
