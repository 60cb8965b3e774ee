"""The judge of a growth run finds what it is to find."""

from __future__ import annotations

import pytest

from tests.growth.check import problems_of
from tests.growth.reading import Line

RIGHT = [("w-1", 0), ("w-1", 1), ("w-1", 2), ("w-2", 1), ("w-2", 2), ("w-2", 3)]


def lines(*messages: tuple[str, int]) -> list[Line]:
    return [Line("v1,0:0", "a", number, instance) for instance, number in messages]


def test_what_a_killed_producer_publishes_again_is_no_problem() -> None:
    assert problems_of(lines(*RIGHT), {"a": {0, 1, 2, 3}}) == []


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (RIGHT[:-1], "a: 1 messages are lost, the first is 3"),
        ([*RIGHT, RIGHT[-1]], "a: 1 messages were given twice"),
        ([*RIGHT[:3], RIGHT[4], RIGHT[3], RIGHT[5]], "a: ('w-2', 1) was given after ('w-2', 2)"),
        ([*RIGHT[3:], *RIGHT[:3]], "a: ('w-1', 0) was given after ('w-2', 3)"),
    ],
)
def test_a_message_that_is_lost_doubled_or_out_of_order_is_told(read: list[tuple[str, int]], problem: str) -> None:
    assert problem in problems_of(lines(*read), {"a": {0, 1, 2, 3}})
