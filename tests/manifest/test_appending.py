"""Plans of a direct stream: who may append, and what its head says of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coldstream.errors import (
    ExpiredEpochError,
    InvalidInputError,
    InvalidNameError,
    OffsetOutOfRangeError,
    StreamClosedError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.manifest.appender import MAX_PROPERTIES_BYTES, Appender, Opening, WalKind, WalPlace
from coldstream.manifest.appending import (
    appender_in,
    plan_close,
    plan_create,
    plan_open,
    plan_recovered,
    plan_trim,
    tail_of,
)
from coldstream.manifest.change import Change
from coldstream.manifest.deletion import plan_delete, plan_purged, plan_undelete
from coldstream.manifest.entry import Head, JournalKind
from coldstream.units import MAX_OFFSET, Epoch, Offset
from tests.manifest.world import AT, DUE, STREAM, World, entry

FIRST, SECOND = WalPlace(WalKind.S3, "host-1", 1), WalPlace(WalKind.DISK, "host-2", 7)
ONE, TWO = Epoch(1), Epoch(2)


def created(first: int = 0) -> World:
    world = World()
    world.apply(plan_create(STREAM, AT, first=Offset(first), properties={"b": "2", "a": "1"}, by="alice"))
    return world


def opened() -> World:
    world = created()
    world.apply(plan_open(world.head, FIRST, AT, "host-1"))
    return world


def appender(world: World) -> Appender:
    return appender_in(world.head)


def test_a_stream_is_created_empty_and_closed_at_its_first_offset() -> None:
    world = created(40)
    assert appender(world) == Appender(first=Offset(40), start=Offset(40), properties=(("a", "1"), ("b", "2")))
    assert not appender(world).is_open
    assert (world.head.revision, world.head.next_offset, tail_of(world.head)) == (1, None, 40)
    event = world.changes[-1].event
    assert (event.kind, event.by) == (JournalKind.STREAM_CREATED, "alice")
    world.check_replay()


@pytest.mark.parametrize("first", [-1, MAX_OFFSET + 1])
def test_a_stream_begins_at_an_offset(first: int) -> None:
    plan_create(STREAM, AT, first=Offset(MAX_OFFSET), properties={})
    with pytest.raises(InvalidInputError, match="is no offset"):
        plan_create(STREAM, AT, first=Offset(first), properties={})


def test_properties_are_bounded_in_bytes() -> None:
    fits = {"é": "x" * (MAX_PROPERTIES_BYTES - 2)}
    plan_create(STREAM, AT, first=Offset(0), properties=fits)
    with pytest.raises(InvalidNameError, match="4097 bytes"):
        plan_create(STREAM, AT, first=Offset(0), properties={**fits, "": "x"})
    with pytest.raises(InvalidNameError, match="UTF-8"):
        plan_create(STREAM, AT, first=Offset(0), properties={"a": "\ud800"})


def test_each_opening_has_the_next_epoch_and_stays_until_it_is_recovered() -> None:
    world = opened()
    assert appender(world).openings == (Opening(ONE, FIRST),)
    world.apply(plan_open(world.head, SECOND, AT))
    assert appender(world).openings == (Opening(ONE, FIRST), Opening(TWO, SECOND))
    assert world.changes[-1].event.detail == "epoch 2, disk host-2/7"
    world.apply(plan_recovered(world.head, TWO, AT))
    assert world.changes[-1].event.by is None, "the writer itself"
    assert appender(world).openings == (Opening(TWO, SECOND),)
    world.apply(plan_close(world.head, TWO, AT))
    assert (appender(world).epoch, appender(world).openings) == (2, ())
    world.check_replay()


def test_appending_leaves_the_appender_and_moves_the_tail() -> None:
    world = opened()
    before = appender(world)
    world.commit(entry(0, 10))
    assert (appender(world), tail_of(world.head)) == (before, 10)


def test_a_deletion_and_its_end_leave_the_appender() -> None:
    world = opened()
    before = appender(world)
    world.apply(plan_delete(world.head, AT, DUE, "alice"))
    assert appender(world) == before
    world.apply(plan_undelete(world.head, AT, "alice"))
    world.apply(plan_delete(world.head, AT, DUE, "alice"))
    world.apply(plan_purged(world.head, AT))
    assert appender(world) == before


def test_a_sealed_stream_takes_nothing_any_more() -> None:
    world = opened()
    world.apply(plan_close(world.head, ONE, AT, is_sealed=True))
    assert world.changes[-1].event.kind is JournalKind.STREAM_SEALED
    with pytest.raises(StreamClosedError, match="is sealed"):
        plan_open(world.head, SECOND, AT)


def test_a_close_that_comes_again_does_not_undo_a_seal() -> None:
    world = opened()
    world.apply(plan_close(world.head, ONE, AT, is_sealed=True))
    world.apply(plan_close(world.head, ONE, AT))
    assert appender(world).is_sealed


def test_a_trim_moves_the_start_forwards_only() -> None:
    world = opened()
    change = plan_trim(world.head, ONE, Offset(5), AT, "alice")
    assert change is not None
    world.apply(change)
    assert appender(world).start == 5
    assert world.changes[-1].event.detail == "to 5"
    assert plan_trim(world.head, ONE, Offset(5), AT) is None
    assert plan_trim(world.head, ONE, Offset(4), AT) is None
    last = plan_trim(world.head, ONE, Offset(MAX_OFFSET + 1), AT)
    assert last is not None
    for offset in (-1, MAX_OFFSET + 2):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is not within 5"):
            plan_trim(world.head, ONE, Offset(offset), AT)


PLANS: dict[str, Callable[[Head, Epoch], Change | None]] = {
    "recovered": lambda head, epoch: plan_recovered(head, epoch, AT),
    "close": lambda head, epoch: plan_close(head, epoch, AT),
    "seal": lambda head, epoch: plan_close(head, epoch, AT, is_sealed=True),
    "trim": lambda head, epoch: plan_trim(head, epoch, Offset(1), AT),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_only_the_last_opening_changes_a_stream(plan: Callable[[Head, Epoch], Change | None]) -> None:
    world = opened()
    plan(world.head, ONE)
    world.apply(plan_open(world.head, SECOND, AT))
    plan(world.head, TWO)
    for epoch in (0, 1, 3):
        with pytest.raises(ExpiredEpochError, match=f"epoch {epoch} is over, it is at 2") as caught:
            plan(world.head, Epoch(epoch))
        assert (caught.value.epoch, caught.value.current) == (epoch, 2)


@pytest.mark.parametrize(
    "plan", [*PLANS.values(), lambda head, _: plan_open(head, SECOND, AT)], ids=[*PLANS.keys(), "open"]
)
def test_a_deleted_stream_and_a_brokers_are_refused(plan: Callable[[Head, Epoch], Change | None]) -> None:
    world = opened()
    world.apply(plan_delete(world.head, AT, DUE, "alice"))
    with pytest.raises(StreamDeletedError):
        plan(world.head, ONE)
    with pytest.raises(StreamNotFoundError, match="is a broker's"):
        plan(World((0, 10)).head, ONE)


@pytest.mark.parametrize("writer", ["", "-a", "a/b", "a.b", "ä", "a" * 64, "a\n"])
def test_the_name_of_a_writer_is_safe_in_keys(writer: str) -> None:
    assert str(WalPlace(WalKind.MEMORY, "a" * 63, 1)) == f"memory {'a' * 63}/1"
    with pytest.raises(InvalidNameError, match="writer"):
        WalPlace(WalKind.S3, writer, 1)


def test_write_ahead_logs_count_from_one() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        replace(FIRST, epoch=0)
