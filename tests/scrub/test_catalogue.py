from __future__ import annotations

import re
from pathlib import Path

import pytest

from coldstream.scrub.catalogue import CATALOGUE, Repair
from coldstream.scrub.damage import Damage, Severity

PAGE = Path(__file__).parents[2] / "docs/scrub.md"


def test_the_page_has_each_damage_as_the_catalogue_has_it() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \| (.*) \|$", PAGE.read_text(), flags=re.MULTILINE)
    told = [(kind.severity.name.lower(), kind.meaning, kind.repair.value) for kind in CATALOGUE.values()]
    assert rows == [(damage.value, *one) for damage, one in zip(CATALOGUE, told, strict=True)]


@pytest.mark.parametrize("damage", Damage)
def test_a_damage_without_a_repair_names_another_command(damage: Damage) -> None:
    kind = CATALOGUE[damage]
    assert kind.command.startswith("coldstream ")
    assert ("--repair" in kind.command) == (kind.repair is not Repair.BY_HAND)


def test_what_takes_messages_away_from_readers_is_critical() -> None:
    taken = {damage for damage, kind in CATALOGUE.items() if kind.repair is Repair.TAKE_AGAIN} - {Damage.BYTES}
    assert {CATALOGUE[damage].severity for damage in taken} == {Severity.CRITICAL}
