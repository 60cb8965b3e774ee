"""The iter_settled of a log, and the groups it gives."""

from __future__ import annotations

from itertools import islice

import pytest

from coldstream.compact.plan import find_groups, iter_settled
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group, Policy
from coldstream.manifest.stream import Incarnation
from coldstream.store.log import iter_log
from coldstream.units import TimestampMs
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.compacting import log_of
from tests.support.compaction import Compaction

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


def test_what_is_committed_while_the_walk_goes_on_is_not_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iter_log, "__defaults__", (5,))
    archive = archive_of(30)
    data_bytes = log_of(archive.table, INCARNATION)[0].data_bytes
    compaction = Compaction(archive)
    found = []
    for group in find_groups(archive.table, INCARNATION, Policy(LATE, 3 * data_bytes)):
        found.append((group.first_offset, group.next_offset))
        for _ in compaction.replace(group, compaction.store(group, Encoding.IDENTITY)):
            pass
    assert found == [(first, first + 3) for first in range(0, 30, 3)]
