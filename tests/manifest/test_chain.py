"""Which entry may come after which in a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import LostRaceError
from coldstream.manifest.chain import check_neighbours
from coldstream.units import Offset
from tests.manifest.samples import fragment


def test_only_a_linked_or_a_containing_entry_comes_right_after_another() -> None:
    before = fragment(10, 20)
    check_neighbours(before, replace(fragment(20, 30), prior_offset=Offset(20)))
    check_neighbours(before, replace(fragment(25, 30), prior_offset=Offset(20)))
    check_neighbours(before, fragment(0, 30))
    for other in (fragment(20, 30), replace(fragment(25, 30), prior_offset=Offset(22)), fragment(15, 30)):
        with pytest.raises(LostRaceError):
            check_neighbours(before, other)
