"""A gap says why, exactly when all of it is explained."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.manifest.change import (
    MAX_ITEMS,
    PutLoss,
    PutQuarantine,
    ReplaceGap,
    RequireGap,
)
from coldstream.manifest.commit import MAX_GAPS, plan_missing
from coldstream.manifest.entry import Gap, Head, JournalKind, Loss, Missing, Quarantine
from coldstream.manifest.missing import MAX_REASONS, is_known, with_reason
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NOW = TimestampMs(1_763_700_000_000)


def loss(first: int, following: int, reason: str = "the disk was full") -> Loss:
    return Loss(Offset(first), Offset(following), reason, NOW)


def quarantine(first: int, following: int, reason: str = "bad CRC", key: str = "quarantine/x") -> Quarantine:
    return Quarantine(Offset(first), Offset(following), reason, NOW, key, '"etag"')


def reason_of(first: int, following: int, *missing: Missing) -> str | None:
    return with_reason(Gap(Offset(first), Offset(following), "an older reason"), missing).reason


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ([], None),
        ([loss(10, 20, "full")], "full"),
        ([loss(0, 100, "full")], "full"),
        ([loss(10, 19, "full")], None),
        ([loss(11, 20, "full")], None),
        ([loss(10, 15, "a"), loss(15, 20, "b")], "a; b"),
        ([loss(15, 20, "b"), loss(10, 15, "a")], "a; b"),
        ([loss(10, 14, "a"), loss(15, 20, "b")], None),
        ([loss(10, 15, "full"), loss(15, 20, "full")], "full"),
        ([loss(0, 10, "before"), loss(10, 20, "full"), loss(20, 30, "behind")], "full"),
        ([loss(5, 18, "a"), loss(8, 16, "nothing of its own"), loss(12, 25, "b")], "a; b"),
        ([quarantine(0, 30, "bad CRC")], "in quarantine: bad CRC"),
        ([quarantine(10, 20, "bad CRC"), loss(10, 20, "full")], "full"),
        ([quarantine(10, 20, "bad CRC"), loss(10, 15, "full")], "in quarantine: bad CRC"),
        ([quarantine(12, 20, "bad CRC"), loss(10, 15, "full")], "full; in quarantine: bad CRC"),
    ],
)
def test_the_reason_of_a_gap_is_that_of_what_covers_it(missing: list[Missing], reason: str | None) -> None:
    assert reason_of(10, 20, *missing) == reason


def test_whether_there_is_a_reason_depends_on_every_offset() -> None:
    rng = random.Random(1)
    found = set()
    for _ in range(500):
        missing: list[Missing] = []
        for number in range(rng.randrange(6)):
            first = rng.randrange(20)
            make = rng.choice([loss, quarantine])
            missing.append(make(first, first + rng.randrange(1, 12), f"reason {number}"))
        explained = all(any(one.first_offset <= offset < one.next_offset for one in missing) for offset in range(5, 15))
        reason = reason_of(5, 15, *missing)
        assert (reason is not None) == explained
        rng.shuffle(missing)
        assert reason_of(5, 15, *missing) == reason
        found.add(explained)
    assert found == {True, False}


def test_a_gap_of_many_reasons_lists_a_few() -> None:
    many = [loss(offset, offset + 1, f"reason {offset}") for offset in range(40)]
    text = reason_of(0, 40, *many)
    assert text == "reason 0; reason 1; reason 2; and 37 more"
    assert reason_of(0, MAX_REASONS, *many) == "reason 0; reason 1; reason 2"


@pytest.mark.parametrize(
    ("new", "known", "says_nothing_new"),
    [
        (loss(10, 20), [], False),
        (loss(10, 20), [loss(10, 20, "another reason")], True),
        (loss(10, 20), [loss(0, 15), loss(15, 40)], True),
        (loss(10, 20), [loss(0, 15), loss(16, 40)], False),
        (loss(10, 20), [quarantine(0, 40)], False),
        (quarantine(10, 20, key="one"), [quarantine(10, 20, key="one", reason="read anew")], True),
        (quarantine(10, 20, key="one"), [quarantine(10, 20, key="other")], False),
        (quarantine(10, 20, key="one"), [quarantine(10, 25, key="one")], False),
        (quarantine(10, 20, key="one"), [loss(0, 40)], False),
    ],
)
def test_what_is_written_down_says_it_already(new: Missing, known: list[Missing], *, says_nothing_new: bool) -> None:
    assert is_known(new, known) == says_nothing_new


def test_a_loss_is_counted_and_written_down() -> None:
    change = plan_missing(Head(STREAM, revision=4, losses=2), loss(5, 9), [loss(0, 2), loss(3, 7)], [])
    assert change is not None
    assert (change.head.revision, change.head.losses, change.head.quarantined) == (5, 3, 0)
    assert change.of(PutLoss) == (PutLoss(loss(5, 9)),)
    event = change.event
    assert (event.revision, event.kind, event.at) == (5, JournalKind.SEGMENT_LOST, NOW)
    assert (event.first_offset, event.next_offset) == (5, 9)
    assert (event.key, event.detail) == (None, "the disk was full")


def test_a_quarantine_is_counted_and_written_down() -> None:
    change = plan_missing(Head(STREAM, revision=1), quarantine(5, 9), [], [])
    assert change is not None
    assert (change.head.revision, change.head.losses, change.head.quarantined) == (2, 0, 1)
    assert change.of(PutQuarantine) == (PutQuarantine(quarantine(5, 9)),)
    event = change.event
    assert event.kind is JournalKind.SEGMENT_QUARANTINED
    assert (event.key, event.detail) == ("quarantine/x", "bad CRC")


def test_another_bad_copy_of_a_segment_takes_the_place_of_the_first_and_is_not_another_segment() -> None:
    known = [quarantine(5, 9, key="one")]
    change = plan_missing(Head(STREAM, revision=1, quarantined=1), quarantine(5, 9, key="other"), known, [])
    assert change is not None
    assert (change.head.quarantined, change.head.quarantined_again) == (1, 1)
    assert change.of(PutQuarantine) == (PutQuarantine(replace(quarantine(5, 9, key="other"), copies=2)),)


def test_what_is_written_down_changes_nothing() -> None:
    told = Gap(Offset(6), Offset(8), "the disk was full")
    assert plan_missing(Head(STREAM, revision=1, losses=1), loss(5, 9), [loss(5, 9)], [told]) is None


def test_gaps_that_were_there_before_are_told_in_a_change_of_a_transaction() -> None:
    gaps = [Gap(Offset(first), Offset(first + 5)) for first in range(0, 10 * MAX_GAPS, 10)]
    change = plan_missing(Head(STREAM), loss(0, 10 * MAX_GAPS), [], gaps)
    assert change is not None
    assert change.items == MAX_ITEMS
    assert [one.before for one in change.of(ReplaceGap)] == gaps
    assert {one.gap.reason for one in change.of(ReplaceGap)} == {"the disk was full"}


def test_gaps_of_a_second_change_are_relied_on_even_where_nothing_changes() -> None:
    told = Gap(Offset(6), Offset(8), "the disk was full")
    change = plan_missing(Head(STREAM, 1, losses=1), loss(5, 9), [loss(5, 9)], [told], is_checked=False)
    assert change is not None
    assert (change.writes, change.head.revision) == ((RequireGap(told),), 2)


def test_a_gap_that_is_explained_by_half_stays_unexplained() -> None:
    gap = Gap(Offset(0), Offset(10))
    change = plan_missing(Head(STREAM, revision=1), loss(3, 20), [], [gap])
    assert change is not None
    assert (change.of(RequireGap), change.of(ReplaceGap)) == ((RequireGap(gap),), ())
    change = plan_missing(Head(STREAM, revision=2), loss(0, 3, "late"), [loss(3, 20)], [gap])
    assert change is not None
    assert change.of(ReplaceGap) == (ReplaceGap(gap, replace(gap, reason="late; the disk was full")),)
