"""How far a chain of entries reaches, and which entry may follow which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import LostRaceError
from coldstream.manifest.chain import chain_end, check_neighbours
from coldstream.units import Offset
from tests.manifest.samples import fragment


@pytest.mark.parametrize(
    ("entries", "end"),
    [
        pytest.param([], 5, id="none"),
        pytest.param([(0, 5)], 5, id="one that ends there"),
        pytest.param([(6, 10)], 5, id="one after a hole"),
        pytest.param([(5, 10), (10, 20)], 20, id="an unbroken chain"),
        pytest.param([(5, 10), (11, 20)], 10, id="up to a hole"),
        pytest.param([(5, 10), (15, 20), (8, 30)], 30, id="a merged entry that covers the hole before it"),
    ],
)
def test_a_chain_ends_before_the_first_hole(entries: list[tuple[int, int]], end: int) -> None:
    assert chain_end([fragment(first, after) for first, after in entries], Offset(5)) == end


def test_only_a_linked_or_a_containing_entry_comes_right_after_another() -> None:
    before = fragment(10, 20)
    check_neighbours(before, replace(fragment(20, 30), prior_offset=Offset(20)))
    check_neighbours(before, replace(fragment(25, 30), prior_offset=Offset(20)))
    check_neighbours(before, fragment(0, 30))
    for other in (fragment(20, 30), replace(fragment(25, 30), prior_offset=Offset(22)), fragment(15, 30)):
        with pytest.raises(LostRaceError):
            check_neighbours(before, other)
