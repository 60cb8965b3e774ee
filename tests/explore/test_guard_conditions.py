"""Of conditions that stand before each other each is one: with any of them put back, the schedule ends well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.explore import further
from tests.explore.guards import Guard, Guards
from tests.explore.machine import Violation
from tests.explore.patches import reproducible
from tests.explore.playing import follow
from tests.explore.schedules import Move, moves_of
from tests.explore.searching import watched

further.load()

LINES = [line.split("\t") for line in (Path(__file__).parent / "shown" / "conditions.tsv").read_text().splitlines()]
PAIRS = [
    (guards, one, text) for names, text, _ in LINES if len(guards := Guards.parse(names).all) > 1 for one in guards
]


@pytest.fixture(autouse=True)
def patch() -> Iterator[pytest.MonkeyPatch]:
    with reproducible() as patch:
        yield patch


@pytest.mark.parametrize(("guards", "back", "text"), PAIRS, ids=[f"{one} of {text}" for _, one, text in PAIRS])
def test_with_one_of_them_alone_the_schedule_leads_nowhere_bad(
    guards: tuple[Guard, ...], back: Guard, text: str
) -> None:
    left = Guards(tuple(one for one in guards if one != back))
    place, _, moves = text.partition(":")
    names, _, faults = place.partition("/")
    with left.taken_away():
        machine = watched(names, faults)
        try:
            with suppress(ValueError):  # whoever is refused makes no more requests
                follow(machine, moves_of(moves), tell=False)
        finally:
            machine.programs.close()


def test_a_violation_tells_with_which_of_several_outcomes_it_comes() -> None:
    with Guards.parse("condition: PutEntry + condition: Relink").taken_away():
        machine = watched("headless+second+second.2", "0c0l0rh")
        state = follow(machine, moves_of("a10b10"), tell=False)
        with pytest.raises(Violation):
            list(machine.moves(state, 1))
        machine.programs.close()
    assert machine.trying == Move(1, outcome=1)
