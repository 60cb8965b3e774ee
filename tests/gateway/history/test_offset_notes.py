"""Notes of stored offsets: written soon, the last of each, and not often."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coldstream.errors import CorruptionError, UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history import offset_notes
from coldstream.gateway.history.calls import CallThreads
from coldstream.gateway.history.offset_notes import OffsetNotes
from coldstream.gateway.history.stored_offsets import read_offset
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.support.archive import STREAM

KEY = ("/", "orders", "app")


class SlowTable(MemoryTable):
    """Counts writes, and raises what `errors` has before it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.writes = 0

    def put_state(self, *changed: StateItem) -> None:
        self.writes += 1
        if self.errors:
            raise self.errors.pop()
        super().put_state(*changed)


async def archived(_: str, stream: str) -> Incarnation | None:
    return STREAM.incarnation if stream == "orders" else None


def run(
    scenario: Callable[[OffsetNotes, SlowTable], Awaitable[None]],
    figures: GatewayFigures | None = None,
    **options: Any,
) -> SlowTable:
    table = SlowTable()

    async def main() -> None:
        calls = CallThreads("test", 4)
        notes = OffsetNotes(table, calls, archived, figures or GatewayFigures(), **options)
        try:
            await asyncio.wait_for(scenario(notes, table), 30)
        finally:
            notes.close()
            calls.close()

    asyncio.run(main())
    return table


def stored(table: SlowTable, reference: str = "app") -> int | None:
    found = read_offset(table, STREAM.incarnation, reference)
    return None if found is None else found.offset


def test_only_the_last_of_many_is_written() -> None:
    async def scenario(notes: OffsetNotes, _: SlowTable) -> None:
        for offset in [*range(1000), 5]:
            notes.note(KEY, Offset(offset))
        assert notes.noted(KEY) == 5
        await notes.flush()
        assert notes.noted(KEY) is None

    table = run(scenario, write_every_s=3600)
    assert (stored(table), table.writes) == (5, 1)


def test_it_is_written_without_a_flush_and_then_not_again_for_a_while() -> None:
    async def scenario(notes: OffsetNotes, table: SlowTable) -> None:
        notes.note(KEY, Offset(1))
        while stored(table) is None:  # noqa: ASYNC110  the table has no event
            await asyncio.sleep(0.01)
        notes.note(KEY, Offset(2))
        began = asyncio.get_running_loop().time()
        while stored(table) == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began > 0.2

    assert run(scenario, write_every_s=0.5).writes == 2


def test_a_write_that_fails_is_tried_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(notes: OffsetNotes, table: SlowTable) -> None:
        table.errors = [UnavailableError("away"), UnavailableError("away")]
        notes.note(KEY, Offset(7))
        await notes.flush()

    figures = GatewayFigures()
    with caplog.at_level("WARNING"):
        assert stored(run(scenario, figures)) == 7
    assert figures.archive_failures_total == {"unavailable": 2}
    assert [record.message for record in caplog.records if record.name == offset_notes.__name__] == [
        "offset of 'app' for stream 'orders' in vhost '/' is not stored: away"
    ]


def test_one_that_can_never_be_written_is_dropped_and_holds_up_no_other() -> None:
    async def scenario(notes: OffsetNotes, table: SlowTable) -> None:
        table.errors = [CorruptionError("item", 0, "malformed")]
        notes.note(KEY, Offset(7))
        await notes.flush()
        notes.note(("/", "unknown", "app"), Offset(7))
        notes.note(("/", "orders", "other"), Offset(8))
        await notes.flush()
        assert notes.noted(("/", "unknown", "app")) is None

    table = run(scenario)
    assert (stored(table), stored(table, "other")) == (None, 8)


def test_a_later_note_is_not_lost_while_an_earlier_one_fails() -> None:
    async def scenario(notes: OffsetNotes, table: SlowTable) -> None:
        table.errors = [UnavailableError("away")]
        notes.note(KEY, Offset(1))
        flushing = asyncio.ensure_future(notes.flush())
        while not table.writes:  # noqa: ASYNC110
            await asyncio.sleep(0)
        notes.note(KEY, Offset(2))
        await flushing
        assert notes.noted(KEY) is None

    assert stored(run(scenario)) == 2


def test_a_clock_that_is_set_back_does_not_make_a_later_offset_an_earlier_one() -> None:
    times = iter([5000, 1000, 900])

    async def scenario(notes: OffsetNotes, _: SlowTable) -> None:
        for offset in (1, 2, 3):
            notes.note(KEY, Offset(offset))
            await notes.flush()

    assert stored(run(scenario, now=lambda: TimestampMs(next(times)))) == 3


def test_many_references_are_written_and_no_more_are_kept_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_notes, "MOST_NOTES", 50)

    async def scenario(notes: OffsetNotes, _: SlowTable) -> None:
        for number in range(60):
            notes.note(("/", "orders", f"app-{number}"), Offset(number))
        await notes.flush()

    table = run(scenario, write_every_s=3600)
    assert [stored(table, f"app-{number}") for number in range(60)] == [*[None] * 10, *range(10, 60)]


def test_nothing_runs_while_nothing_is_noted() -> None:
    async def scenario(notes: OffsetNotes, _: SlowTable) -> None:
        notes.note(KEY, Offset(1))
        await notes.flush()
        assert len(asyncio.all_tasks()) <= 2  # this one, and the one that waits for it

    run(scenario)


class LookedThrough(OrderedDict[Any, Any]):
    """Counts how often all of it is looked through."""

    rounds = 0

    def items(self) -> Any:
        self.rounds += 1
        return super().items()

    def values(self) -> Any:
        self.rounds += 1
        return super().values()


def test_however_many_come_one_by_one_all_are_looked_through_a_few_times_a_second() -> None:
    """Or 5,000 consumers that store every few seconds would take half of the event loop's time."""

    async def scenario(notes: OffsetNotes, _: SlowTable) -> None:
        notes._pending = pending = LookedThrough()
        for number in range(300):
            notes.note(("/", "orders", f"app-{number}"), Offset(number))
            for _ in range(3):
                await asyncio.sleep(0)
        assert pending.rounds <= 2
        await notes.flush()

    table = run(scenario, write_every_s=3600)
    assert stored(table, "app-299") == 299


def test_an_offset_is_written_beside_the_incarnation_that_it_is_one_of() -> None:
    before = Incarnation("__orders_1663700000000000000")

    async def scenario(notes: OffsetNotes, table: SlowTable) -> None:
        notes.note(KEY, Offset(1_000_000), before)
        assert notes.noted(KEY, before) == 1_000_000
        assert notes.noted(KEY, STREAM.incarnation) is None
        await notes.flush()
        found = read_offset(table, before, "app")
        assert found is not None
        assert found.offset == 1_000_000
        assert stored(table) is None
        notes.note(KEY, Offset(3), STREAM.incarnation)
        await notes.flush()

    assert stored(run(scenario, write_every_s=3600)) == 3
