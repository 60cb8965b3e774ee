"""The model by itself: its invariants hold in small worlds, and without any one of its guards one of them does not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.tlc import LIVENESS, MODELS, REMEDY, check, find_tlc, verdict_of
from tests.model.worlds import AGAIN, EDGE, WORLDS
from tests.support.fixtures import do_without

SHOWN = {
    "If-None-Match": ("compaction", "Inv2_EntriesHaveObjects"),
    "claim": ("holds", "Inv10_HeldStays"),
    "claim looks at holds": ("holds", "Inv10_HeldStays"),
    "discard raises": ("garbage", "Inv10_BuriedStayBuried"),
    "fence": ("garbage", "Inv2_EntriesHaveObjects"),
    "floor": ("garbage", "Inv10_NothingBelowFloor"),
    "floor rises": ("garbage", "Inv1_ArchivedStays"),
    "garbage looks at the log": ("deletion", "Inv2_EntriesHaveObjects"),
    "garbage looks at tombstones": ("garbage", "Inv5_UrlsWork"),
    "generation": ("garbage", "Inv10_BuriedStayBuried"),
    "grace": ("holds", "Inv5_UrlsWork"),
    "history": ("histories", "Inv3_OneHistory"),
    "hold waits": ("holds", "Inv10_HeldStays"),
    "holds": ("holds", "Inv10_HeldStays"),
    "kept first": ("losses", "Inv1_QuarantineHasCopies"),
    "new generation": ("compaction", "Inv10_BuriedStayBuried"),
    "not deleted": ("losses", "Inv8_DeletedIsDeleted"),
    "overlap": ("garbage", "Inv5_NoOverlap"),
    "purge is final": ("deletion", "Inv10_NeverFalls"),
    "settled": ("announced", "Inv1_CopiesStay"),
    "signature": ("holds", "Inv10_HeldStays"),
}
"""By guard: the world that shows it, and what then does not hold."""


@pytest.fixture(autouse=True)
def _tlc() -> None:
    if find_tlc() is None:
        do_without("TLC", REMEDY)


@pytest.mark.parametrize("name", WORLDS)
def test_all_behaviours_of_a_small_world_keep_the_invariants(name: str, tmp_path: Path) -> None:
    world = WORLDS[name]
    found = check(tmp_path, "Small", world.config(), {"Small": world.module("Small")})
    assert found.broken is None, found.text
    assert found.distinct_states > 100


@pytest.mark.parametrize("guard", SHOWN)
def test_without_a_guard_an_invariant_is_broken(guard: str, tmp_path: Path) -> None:
    name, broken = SHOWN[guard]
    world = replace(WORLDS[name], is_live=False)
    found = check(tmp_path, "Small", world.config(without=guard), {"Small": world.module("Small")})
    assert found.broken == broken, found.text


def test_each_guard_of_the_model_is_shown() -> None:
    text = (MODELS / "Coldstream.tla").read_text()
    assert {*re.findall(r'On\("([^"]+)"', text), *re.findall(r'Without = "([^"]+)"', text)} == SHOWN.keys()


@pytest.mark.parametrize("part", AGAIN)
def test_what_is_announced_may_never_end_if_a_part_of_its_upload_does_not_come_again(part: str, tmp_path: Path) -> None:
    world = WORLDS["losses"]
    found = check(tmp_path, "Small", world.config(without=f"again: {part}"), {"Small": world.module("Small")})
    assert found.broken == LIVENESS, found.text


def test_each_part_of_fairness_is_shown() -> None:
    assert sorted(re.findall(r'Without /= "again: (\w+)"', (MODELS / "Coldstream.tla").read_text())) == sorted(AGAIN)


def test_a_world_that_has_too_few_keys_is_not_taken_for_a_copy_that_waits(tmp_path: Path) -> None:
    world = replace(WORLDS["announced"], spare=1)
    found = check(tmp_path, "Small", world.config(), {"Small": world.module("Small")})
    assert found.broken == EDGE, found.text


def test_a_copy_that_waits_is_told_though_not_all_was_seen() -> None:
    told = (
        "Error: Temporal properties were violated.\nState 1: <Initial predicate>\nState 2: Stuttering\n"
        "130726 states generated, 29319 distinct states found, 10393 states left on queue.\n"
    )
    found = verdict_of(told)
    assert (found.broken, found.is_whole, found.distinct_states) == (LIVENESS, False, 29319)
