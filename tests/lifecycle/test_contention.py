"""Whatever ends a life, killed before and after every call, and with another at work between any two of its calls.

Nothing that is named is deleted, nothing that was removed comes back, the journal gives the table, and whoever died is
done by the next who asks for the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from coldstream.archive.commit import commit_fragment
from coldstream.errors import ColdstreamError, RemovedError
from coldstream.lifecycle.classes import MIN_OBJECT_BYTES, move_to_class
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.tend import tend
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.manifest.entry import Hold, StorageClass
from coldstream.manifest.state import replay
from coldstream.store.object_values import SIGNATURE_MS
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import NOW, STREAM
from tests.support.compacting import Calls, Inline, Killed, compact_stream, options_of
from tests.support.compaction import identity_of
from tests.support.lifecycle import GRACE_MS, INCARNATION, Scene

FRAGMENTS = 7
REMOVED = 3
Act = Callable[["Life", LifecycleStores], object]


@pytest.fixture(autouse=True)
def _as_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small transactions and batches, everything in one thread, no delays, all objects large enough to be moved."""
    for name in ("coldstream.lifecycle.prefix.MAX_PREFIX", "coldstream.lifecycle.sweep.MAX_SWEPT"):
        monkeypatch.setattr(name, 2)
    monkeypatch.setattr("coldstream.lifecycle.sweep.MAX_KEYS", 3)
    monkeypatch.setattr("coldstream.lifecycle.deletes.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("coldstream.compact.run.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("coldstream.store.races.FIRST_DELAY_S", 0)
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 0)
    assert MIN_OBJECT_BYTES > 0


def truncated(_: Life, stores: LifecycleStores) -> None:
    remove_prefix(stores, INCARNATION, up_to_offset(Offset(2 * REMOVED)), why="", by="")


def truncated_more(_: Life, stores: LifecycleStores) -> None:
    remove_prefix(stores, INCARNATION, up_to_offset(Offset(2 * REMOVED + 4)), why="", by="")


def swept(_: Life, stores: LifecycleStores) -> None:
    for report in tend(stores, [STREAM]):
        if report.error is not None:
            raise report.error


def deleted(_: Life, stores: LifecycleStores) -> None:
    delete_stream(stores, INCARNATION, grace_ms=0, by="me")


def undeleted(_: Life, stores: LifecycleStores) -> None:
    undelete_stream(stores, INCARNATION, by="me")


def moved(_: Life, stores: LifecycleStores) -> None:
    move_to_class(stores, INCARNATION, StorageClass.GLACIER_IR, NOW)


def held(life: Life, stores: LifecycleStores) -> Hold:
    return put_hold(
        stores,
        INCARNATION,
        first_offset=Offset(4),
        next_offset=Offset(7),
        reason="case",
        by="counsel",
        wait=lambda _: life.clock.pass_ms(SIGNATURE_MS),
    )


def held_and_released(life: Life, stores: LifecycleStores) -> None:
    release_hold(stores, INCARNATION, held(life, stores).id, by="judge")


def compacted(_: Life, stores: LifecycleStores) -> None:
    compact_stream(stores.table, stores.objects, STREAM, options_of())  # type: ignore[arg-type]  # may be proxies


def archived(life: Life, stores: LifecycleStores) -> None:
    """Announce everything again, and something new: what an agent does that knows of nothing."""
    for entry in life.originals:
        with suppress(RemovedError):
            commit_fragment(stores.table, STREAM, entry, life.clock)
    with suppress(RemovedError):
        life.add()


class Life(Scene):
    """A stream, and what was archived of it at first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.originals = self.log
        self.removed_to = 0

    def check(self) -> None:
        """Hold everything against what has to be, at any moment."""
        head, log = self.head, self.log
        assert head is not None
        for entry in log:
            identity_of(self.archive.objects, entry)  # its object is there, whole
            assert entry.first_offset >= head.floor
        assert head.floor >= self.removed_to, "what was removed came back"
        self.removed_to = head.floor
        if head.compacting is None:
            assert head.fragments == len(log)
            assert head.first_offset == (log[0].first_offset if log else None)
            ends = [None, *(entry.next_offset for entry in log)]
            assert [entry.prior_offset for entry in log] == ends[: len(log)]
        tombstones = self.archive.table.tombstones(INCARNATION, TimestampMs(MAX_TIMESTAMP_MS), 10_000)
        assert {one.key for one in tombstones}.isdisjoint(entry.key for entry in log)
        notes = list(self.stores.control.floors(INCARNATION))
        assert all(note.floor <= head.floor for note in notes), "the bucket says that more is removed than the table"
        gone = [entry for entry in self.originals if entry.key not in self.archive.objects.objects]
        for entry in gone:
            covers = any(one.first_offset <= entry.first_offset < one.next_offset for one in log)
            assert covers or any(entry.next_offset <= note.floor for note in notes), "nothing says why it is gone"

    def check_end(self) -> None:
        """Hold everything against what has to be, and the journal against the table."""
        self.check()
        state = replay(self.archive.table.recorded_changes(INCARNATION))
        assert state == self.archive.table._partitions[INCARNATION]


def life_of(*before: Act) -> Life:
    """Return a stream after some acts, each of them whole, with what they removed due."""
    life = Life(fragments=FRAGMENTS)
    for act in before:
        act(life, life.stores)
        life.clock.pass_ms(GRACE_MS)
    life.check()
    return life


LIVES: dict[str, tuple[tuple[Act, ...], Act]] = {
    "truncate": ((), truncated),
    "truncate what is compacted": ((compacted, archived), truncated_more),
    "sweep": ((truncated,), swept),
    "sweep after compaction": ((truncated, compacted), swept),
    "delete": ((), deleted),
    "undelete": ((deleted,), undeleted),
    "purge": ((deleted,), swept),
    "end of the purge": ((deleted, swept), swept),
    "hold": ((truncated,), held),
    "hold and release": ((truncated,), held_and_released),
    "move": ((), moved),
}
OTHERS: tuple[Act, ...] = (truncated, truncated_more, swept, deleted, held, moved, compacted, archived)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", LIVES)
def test_killed_at_any_call_it_leaves_all_right_and_the_next_run_finishes_it(name: str, *, is_done: bool) -> None:
    before, act = LIVES[name]
    whole = life_of(*before)
    act(whole, whole.stores)
    for number in count(1):
        life = life_of(*before)

        def on_call(called: int, _: str, done: bool, number: int = number) -> None:  # noqa: FBT001  as it is called
            if called > number or (called == number and done is is_done):
                raise Killed

        is_killed = True
        with suppress(Killed):
            act(life, life.watched(Calls(life.archive.table, life.archive.objects, on_call)))
            is_killed = False
        life.check()
        archived(life, life.stores)
        life.check()
        with suppress(ColdstreamError):
            act(life, life.stores)
        life.check_end()
        assert end_of(life) == end_of(whole)
        if not is_killed:
            break
    assert number > 3


def end_of(life: Life) -> tuple[object, ...]:
    """Return what must be the same, whoever died on the way there."""
    head = life.head
    assert head is not None
    return head.floor, head.is_deleted, head.purge_began_at is None


@pytest.mark.parametrize("other", OTHERS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("name", LIVES)
def test_with_another_at_work_before_any_call_all_stays_right(name: str, other: Act) -> None:
    before, act = LIVES[name]
    for number in count(1):
        life = life_of(*before)

        def on_call(called: int, _: str, done: bool, number: int = number) -> None:  # noqa: FBT001  as it is called
            if called == number and not done:
                with suppress(ColdstreamError):
                    other(life, life.stores)  # noqa: B023  done with before the next
                life.check()  # noqa: B023

        calls = Calls(life.archive.table, life.archive.objects, on_call)
        with suppress(ColdstreamError):
            act(life, life.watched(calls))
        life.check_end()
        if calls.number < number:
            break
