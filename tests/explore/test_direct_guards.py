"""The guards of direct streams and of jobs are needed: without each a schedule ends badly, which is played here.

tests/explore/direct_shown.tsv has what `python -m tests.explore.direct_guards GUARD WORLD …` found. What needs a party
that is not at work here is in tests/explore/explained/direct.tsv, with the test that fails without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.explore.actors import PLAIN, STAGED
from tests.explore.direct_bases import BASES
from tests.explore.direct_guards import NEEDLESS, direct_guards, hunt_without, play_without
from tests.explore.direct_world import DIRECT
from tests.explore.guards import Guards
from tests.explore.jobs import JOBS_ACTORS
from tests.explore.machine import Violation
from tests.explore.patches import reproducible

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SHOWN = [line.split("\t") for line in (HERE / "direct_shown.tsv").read_text().splitlines()]
EXPLAINED = [line.split("\t") for line in (HERE / "explained" / "direct.tsv").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _reproducible() -> Iterator[None]:
    with reproducible():
        yield


@pytest.mark.parametrize(("guard", "text", "told"), SHOWN, ids=[one[0] for one in SHOWN])
def test_without_it_its_schedule_ends_badly(guard: str, text: str, told: str) -> None:
    with pytest.raises(Violation, match=told):
        play_without(Guards.parse(guard), text)


def test_each_guard_is_shown_or_explained() -> None:
    listed = {str(one) for one in direct_guards()}
    shown = {str(one) for text, _, _ in SHOWN for one in Guards.parse(text).all}
    explained = {guard for guard, _, _ in EXPLAINED}
    assert listed - shown - explained == set()
    assert explained <= listed - shown
    assert len(explained) <= 0.05 * len(listed) + 1


@pytest.mark.parametrize(("guard", "node", "why"), EXPLAINED, ids=[one[0] for one in EXPLAINED])
def test_what_explains_a_guard_is_a_test(guard: str, node: str, why: str) -> None:
    path, _, name = node.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()
    assert guard
    assert why


@pytest.mark.parametrize("guard", NEEDLESS)
def test_without_what_is_no_guard_nothing_is_broken(guard: str) -> None:
    assert hunt_without(Guards.parse(guard), "append+append.2", "0c0l0r") is None


@pytest.mark.parametrize("text", sorted({text for _, text, _ in SHOWN}))
def test_with_all_guards_no_schedule_ends_badly(text: str) -> None:
    with suppress(ValueError):  # with them it takes another course
        play_without(Guards(()), text)


def test_no_actor_of_one_kind_of_world_has_the_name_of_another() -> None:
    kinds = [{*PLAIN, *STAGED, "rival"}, {*DIRECT, *BASES}, {*JOBS_ACTORS}]
    assert sum(map(len, kinds)) == len(set().union(*kinds))
