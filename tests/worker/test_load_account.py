"""What a load leaves out, counted once, when the cursor has passed it."""

from __future__ import annotations

import random

from coldstream.manifest.entry import Gap
from coldstream.replay.left_out import LeftOutMessages, LeftOutReason
from coldstream.units import Offset, TimestampMs
from coldstream.worker.load_account import NO_REASON, LoadAccount


def left_out(first: int, after: int, reason: LeftOutReason, time: int | None = None) -> LeftOutMessages:
    return LeftOutMessages(Offset(first), Offset(after), reason, None if time is None else TimestampMs(time))


def account(start: int = 0, end: int = 1000) -> LoadAccount:
    return LoadAccount("orders", Offset(start), Offset(end))


def test_neighbours_of_one_reason_are_told_together() -> None:
    one = account()
    for offset in (5, 6, 7, 9):
        one.leave_out(left_out(offset, offset + 1, LeftOutReason.ERASED))
    one.leave_out(left_out(8, 9, LeftOutReason.NO_KEY))
    told = one.settle(Offset(100)).left_out
    assert [(each.what, each.count, each.reason) for each in told] == [
        ("offsets 5 to 7 of orders", 3, "erased"),
        ("offset 8 of orders", 1, "no routing key"),
        ("offset 9 of orders", 1, "erased"),
    ]
    assert one.settle(Offset(1000)).left_out == ()


def test_only_what_lies_before_the_cursor_is_told() -> None:
    one = account()
    one.leave_out(left_out(5, 20, LeftOutReason.ERASED))
    assert [each.count for each in one.settle(Offset(12)).left_out] == [7]
    assert [each.count for each in one.settle(Offset(30)).left_out] == [8]


def test_the_part_of_a_gap_that_was_to_be_loaded_counts() -> None:
    one = account(10, 50)
    one.skip(Gap(Offset(5), Offset(20), "deleted"))
    one.skip(Gap(Offset(40), Offset(90), None))
    told = one.settle(Offset(50)).left_out
    assert [(each.count, each.reason) for each in told] == [
        (10, "deleted"),
        (10, NO_REASON),
    ]


def test_messages_that_are_too_late_are_counted_apart() -> None:
    one = account()
    one.leave_out(left_out(1, 2, LeftOutReason.LATE, 700))
    one.leave_out(left_out(2, 3, LeftOutReason.LATE, 500))
    one.leave_out(left_out(8, 9, LeftOutReason.LATE, 600))
    settled = one.settle(Offset(5))
    assert (settled.left_out, settled.late, settled.late_from) == ((), 2, 500)
    assert one.settle(Offset(100)).late == 1


def test_whatever_is_told_again_after_a_lost_connection_counts_once() -> None:
    rng = random.Random(5)
    for _ in range(200):
        missing = sorted(rng.sample(range(60), rng.randrange(20)))
        one, told, at = account(), 0, 0
        while at < 60:
            # A connection begins at what is confirmed, goes some way, and is lost.
            to = rng.randrange(at, 61)
            for offset in missing:
                if at <= offset < to:
                    one.leave_out(left_out(offset, offset + 1, LeftOutReason.UNROUTABLE))
            at = rng.randrange(at, to + 1)
            told += sum(each.count for each in one.settle(Offset(at)).left_out)
        assert told == len(missing)
