from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldstream.manifest.change import Change
from coldstream.manifest.entry import Head, JournalEvent, JournalKind, Row
from coldstream.manifest.state import ManifestState, replay
from coldstream.manifest.stream import Incarnation
from coldstream.operate.history import CLOCK_SLACK_MS, fold, recent_events, state_at
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs
from tests.rebuild.samples import rows_of
from tests.rebuild.world import RandomArchive
from tests.support.histories import INCARNATION, History
from tests.support.segments import START, STREAM

HOUR_MS = 3_600_000


def ordered(rows: Iterator[Row] | list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("seed", range(60))
def test_after_any_history_of_the_manifest_its_journal_replays_to_its_table(seed: int) -> None:
    history = History(seed)
    history.run()
    changes = history.table.recorded_changes(INCARNATION)
    assert ordered(rows_of(replay(changes))) == ordered(history.table.rows(INCARNATION))


@pytest.mark.parametrize("seed", range(10))
def test_after_any_life_of_an_archive_its_journal_replays_to_its_table(seed: int, tmp_path: Path) -> None:
    archive = RandomArchive(seed, tmp_path)
    archive.live()
    incarnation = archive.stream.incarnation
    assert ordered(rows_of(replay(archive.table.recorded_changes(incarnation)))) == ordered(
        archive.table.rows(incarnation)
    )


def dated(table: MemoryTable, incarnation: Incarnation) -> list[tuple[JournalEvent, Change]]:
    """Have each change happen an hour after the one before."""
    return [
        (replace(event, at=TimestampMs(event.revision * HOUR_MS)), change)
        for event, change in table.recorded_changes(incarnation)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_state_at_any_time_is_that_of_the_replay_up_to_then(seed: int) -> None:
    history = History(seed)
    history.run()
    changes = dated(history.table, INCARNATION)
    assert fold(changes, TimestampMs(HOUR_MS - 1)) is None
    for event, _ in changes:
        expected: ManifestState = replay(changes, until_ms=event.at)
        found = fold(changes, TimestampMs(event.at + HOUR_MS - 1))
        assert found is not None
        assert (found.event, found.head) == (event, expected.head)
        assert found.gaps == tuple(sorted(expected.gaps.values(), key=lambda gap: gap.first_offset))
        assert sorted(found.missing, key=repr) == sorted(expected.missing.values(), key=repr)


class EventTable(MemoryTable):
    """A table of many events and nothing else; `read` counts them."""

    def __init__(self, times: list[int]) -> None:
        super().__init__()
        kind = JournalKind.FRAGMENT_COMMITTED
        self.events = [JournalEvent(n, kind, TimestampMs(at), None, None) for n, at in enumerate(times, 1)]
        self.read = 0

    def head(self, incarnation: Incarnation) -> Head | None:
        return Head(STREAM, revision=len(self.events))

    def journal(
        self, incarnation: Incarnation, after_revision: int = 0, *, page_items: int | None = None
    ) -> Iterator[JournalEvent]:
        for event in self.events[after_revision:]:
            self.read += 1
            yield event


def revisions(events: tuple[JournalEvent, ...]) -> list[int]:
    return [event.revision for event in events]


def test_the_last_events_come_without_the_ones_before() -> None:
    table = EventTable([n * HOUR_MS for n in range(10_000)])
    assert revisions(recent_events(table, STREAM.incarnation, limit=3)) == [9998, 9999, 10_000]
    assert table.read == 3


def test_events_of_a_span_are_found_without_reading_what_comes_before() -> None:
    table = EventTable([n * HOUR_MS for n in range(10_000)])
    since, until = TimestampMs(5000 * HOUR_MS), TimestampMs(5003 * HOUR_MS)
    found = recent_events(table, STREAM.incarnation, since=since, until=until, limit=100)
    assert revisions(found) == [5001, 5002, 5003]
    assert table.read < 40


def test_an_event_of_a_slow_clock_is_found_by_its_time() -> None:
    times = [n * HOUR_MS for n in range(100)]
    times[50] -= CLOCK_SLACK_MS - 1
    found = recent_events(EventTable(times), STREAM.incarnation, since=TimestampMs(50 * HOUR_MS), limit=100)
    assert revisions(found) == list(range(52, 101))
    since = TimestampMs(times[50])
    assert recent_events(EventTable(times), STREAM.incarnation, since=since, limit=100)[0].revision == 51


def test_revisions_without_an_event_shorten_nothing() -> None:
    class Sparse(EventTable):
        def head(self, incarnation: Incarnation) -> Head | None:
            return Head(STREAM, revision=1000, journal_from=0)

    assert len(recent_events(Sparse([START] * 20), STREAM.incarnation, limit=10)) == 10


def test_a_stream_that_is_not_there_has_no_history() -> None:
    assert recent_events(MemoryTable(), STREAM.incarnation, limit=10) == ()
    assert state_at(MemoryTable(), STREAM.incarnation, START) is None
