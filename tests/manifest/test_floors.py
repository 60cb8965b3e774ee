"""What a head admits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import BelowFloorError, RemovedError, StaleGenerationError, StreamDeletedError
from coldstream.manifest.entry import Gap, Head
from coldstream.manifest.floors import above, check_floors
from coldstream.manifest.holes import holes
from coldstream.units import MAX_OFFSET, Offset
from tests.manifest.world import AT, STREAM, entry

HEAD = Head(STREAM, 5, floor=Offset(20), generation=2)


@pytest.mark.parametrize(
    ("head", "first", "generation", "error"),
    [
        (HEAD, 20, 2, None),
        (HEAD, 20, 3, None),
        (HEAD, 19, 2, BelowFloorError),
        (HEAD, 0, 2, BelowFloorError),
        (HEAD, 20, 1, StaleGenerationError),
        (replace(HEAD, deleted_at=AT), 20, 2, StreamDeletedError),
        (Head(STREAM), 0, 0, None),
    ],
)
def test_only_what_is_above_the_floor_and_of_a_new_generation_is_admitted(
    head: Head, first: int, generation: int, error: type[RemovedError] | None
) -> None:
    new = entry(first, 30, generation=generation)
    if error is None:
        check_floors(head, new)
        return
    with pytest.raises(error):
        check_floors(head, new)


def test_what_is_removed_raises_the_generation_above_it_and_never_lowers_it() -> None:
    assert above(HEAD, [entry(0, 10), entry(10, 20)]) == 2
    assert above(HEAD, [entry(0, 10, generation=2), entry(10, 20, generation=7)]) == 8


def test_what_was_removed_is_no_hole() -> None:
    everything = Offset(0), Offset(MAX_OFFSET)
    emptied = replace(HEAD, next_offset=Offset(20))
    assert list(holes(emptied, [], [], *everything)) == [Gap(Offset(20), Offset(MAX_OFFSET))]
    shorter = replace(emptied, first_offset=Offset(25), next_offset=Offset(30))
    assert list(holes(shorter, [], [], *everything)) == [
        Gap(Offset(20), Offset(25)),
        Gap(Offset(30), Offset(MAX_OFFSET)),
    ]
    assert list(holes(replace(shorter, deleted_at=AT), [], [], *everything)) == []
