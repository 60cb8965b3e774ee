"""Which offsets no entry covers, and why."""

from __future__ import annotations

import pytest

from coldstream.manifest.entry import Gap, Head, Loss, Missing, Quarantine
from coldstream.manifest.holes import holes
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs

STREAM = StreamId("/", "orders", Incarnation("__orders_1763700000000000000"))
NOW = TimestampMs(0)
HEAD = Head(STREAM, first_offset=Offset(100), next_offset=Offset(500), gaps=2)
GAPS = [Gap(Offset(300), Offset(320)), Gap(Offset(200), Offset(210), "known")]


def loss(first: int, following: int, why: str = "why") -> Loss:
    return Loss(Offset(first), Offset(following), why, NOW)


def found(first: int, following: int, *missing: Missing, head: Head | None = HEAD) -> list[tuple[int, int, str | None]]:
    gaps = GAPS if head is not None and head.gaps else []
    return [
        (hole.first_offset, hole.next_offset, hole.reason)
        for hole in holes(head, gaps, missing, Offset(first), Offset(following))
    ]


def test_holes_are_before_the_first_entry_between_two_and_behind_the_last() -> None:
    assert found(0, 600) == [(0, 100, None), (200, 210, None), (300, 320, None), (500, 600, None)]


@pytest.mark.parametrize(
    ("first", "following", "expected"),
    [
        (100, 200, []),
        (99, 201, [(99, 100, None), (200, 201, None)]),
        (205, 206, [(205, 206, None)]),
        (210, 300, []),
        (499, 501, [(500, 501, None)]),
        (700, 700, []),
    ],
)
def test_no_more_than_what_is_asked_for_is_told(first: int, following: int, expected: list[object]) -> None:
    assert found(first, following) == expected


@pytest.mark.parametrize("head", [None, Head(STREAM, revision=1, losses=1)], ids=["no head", "nothing archived"])
def test_where_nothing_is_archived_all_is_a_hole(head: Head | None) -> None:
    assert found(7, 9, head=head) == [(7, 9, None)]
    assert found(0, 0, head=head) == []


def test_a_hole_is_explained_as_far_as_something_is_known_of_it() -> None:
    bad = Quarantine(Offset(80), Offset(120), "CRC", NOW, "key", "etag")
    assert found(0, 110, loss(20, 40), loss(30, 50, "other"), bad) == [
        (0, 20, None),
        (20, 40, "why"),
        (40, 50, "other"),
        (50, 80, None),
        (80, 100, "in quarantine: CRC"),
    ]
