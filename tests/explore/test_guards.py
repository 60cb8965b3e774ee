"""Guards are needed: without each of them a schedule ends badly, which is played here; with it, it ends well.

tests/explore/shown.tsv has the schedules that `python -m tests.explore.hunting` found, tests/explore/shown those in
worlds that were made for a guard. Below are guards that take more than one change to take away. docs/proof.md has the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.garbage.fragments import FragmentJudge
from coldstream.garbage.looked_at import LookedAt
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.floors import check_generation, check_not_deleted
from coldstream.manifest.stream import Incarnation
from tests.explore import further
from tests.explore.actors import world
from tests.explore.base import HOUR_MS
from tests.explore.explorer import Explorer
from tests.explore.guard_table import PAGE, free, lines, written
from tests.explore.guards import BEFORE_PLANS, OF_BYTES, Guards, all_guards, heard
from tests.explore.hunting import ACTORS
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.explore.playing import follow
from tests.explore.schedules import moves_of
from tests.explore.searching import watched
from tests.explore.watching import Invariants

HERE = Path(__file__).parent
SHOWN = lines(HERE / "shown.tsv", *sorted((HERE / "shown").glob("*.tsv")))
PAIRS = [one for one in SHOWN if " + " in one[0]]
EXPLAINED = [
    line.split("\t")
    for path in sorted((HERE / "explained").glob("*.tsv"))
    for line in path.read_text().splitlines()
    if path.stem != "direct"  # as tests/explore/test_direct_guards.py has them
]
"""Guards that no schedule needs: the test that fails without each, seen to fail, and why no actor comes to that."""

FREE = free()
"""What looks like a guard and is none: two writes in any order, a reading again; and worlds that end well without."""

further.load()

Patch = tuple[str, Callable[..., Any]]


@pytest.fixture(autouse=True)
def patch() -> Iterator[pytest.MonkeyPatch]:
    with reproducible() as patch:
        yield patch


def played(text: str, alter: Callable[..., Any] | None = None) -> None:
    """Play a schedule. Raises Violation."""
    place, _, moves = text.partition(":")
    names, _, faults = place.partition("/")
    machine = watched(names, faults, alter=alter)
    try:
        follow(machine, moves_of(moves), tell=False)
    finally:
        machine.programs.close()


@pytest.mark.parametrize(("guard", "text", "told"), SHOWN, ids=[one[0] for one in SHOWN])
def test_without_it_its_schedule_ends_badly(guard: str, text: str, told: str) -> None:
    with Guards.parse(guard).taken_away() as alter, pytest.raises(Violation, match=told):
        played(text, alter)


@pytest.mark.parametrize(("guard", "text", "told"), SHOWN, ids=[one[0] for one in SHOWN])
def test_with_it_the_moves_of_its_schedule_lead_nowhere_bad(guard: str, text: str, told: str) -> None:
    with suppress(ValueError):  # whoever is refused makes no more requests
        played(text)


@pytest.mark.parametrize(
    ("guard", "text"), [(str(one), text) for pair, text, _ in PAIRS for one in Guards.parse(pair).all], ids=str
)
def test_one_of_a_pair_is_enough(guard: str, text: str) -> None:
    with Guards.parse(guard).taken_away() as alter, suppress(ValueError):
        played(text, alter)


def test_each_guard_is_shown_explained_or_free() -> None:
    listed = {str(one) for one in all_guards(heard((*ACTORS, "wipe")))}
    known = {str(one) for text, *_ in (*SHOWN, *EXPLAINED, *FREE) for one in Guards.parse(text).all}
    assert len(listed) > 90
    assert listed <= known, f"without a schedule: {sorted(listed - known)}"
    assert known <= listed | {f"check: {one}" for one in (*BEFORE_PLANS, *OF_BYTES)}, "no guard any more"


@pytest.mark.parametrize(("guard", "test", "why"), EXPLAINED, ids=[one[0] for one in EXPLAINED])
def test_what_has_no_schedule_has_a_test_elsewhere(guard: str, test: str, why: str) -> None:
    path, _, name = test.partition("::")
    assert guard not in {one[0] for one in SHOWN}
    assert f"def {name}(" in (HERE.parent.parent / path).read_text()
    assert why


@pytest.mark.parametrize(("guard", "text"), FREE, ids=[" ".join(one) for one in FREE])
def test_an_order_or_a_reading_that_is_free_may_be_any(guard: str, text: str) -> None:
    names, _, faults = text.partition("/")
    with Guards.parse(guard).taken_away() as alter:
        machine = watched(names, faults, alter=alter)
        try:
            assert Explorer(machine).search().ends
        finally:
            machine.programs.close()


def _with_a_note_alone(judge: FragmentJudge, incarnation: Incarnation, window: Sequence[LookedAt]) -> Head:
    head = judge.table.head(incarnation)
    assert head is not None
    judge.fence_notes.note(head, replace(head, generation=1 + max(one.generation for one in window)))
    return head


def _without_floor(head: Head, entry: FragmentEntry) -> None:
    check_not_deleted(head)
    check_generation(head, entry)


GARBAGE_FENCE: Patch = ("coldstream.garbage.fragments.FragmentJudge._fenced", _with_a_note_alone)
GARBAGE_NOTE: Patch = ("coldstream.garbage.fence_notes.FenceNotes.note", lambda *_: None)
REMOVAL_RAISES: Patch = ("coldstream.manifest.removal.above", lambda head, _: head.generation)
WAIT_OF_HOLD: Patch = ("coldstream.lifecycle.holds.open_claims", lambda *_: ())
SIGNATURE: Patch = ("coldstream.store.memory.objects.MemoryObjects._check_signature", lambda *_: None)
MARKER: Patch = ("coldstream.lifecycle.sweep.write_missing_markers", lambda *_: None)
REREAD: Patch = ("coldstream.lifecycle.sweep._named", lambda *_: {})
PURGE_OF_WHAT_IS_DELETED: Patch = ("coldstream.lifecycle.prefix._Batch._check_life", lambda *_: None)
COMMIT: Patch = ("coldstream.manifest.commit.check_floors", lambda *_: None)
GENERATION: Patch = ("coldstream.manifest.floors.check_generation", lambda *_: None)
FLOOR: Patch = ("coldstream.manifest.commit.check_floors", _without_floor)


@dataclass(frozen=True)
class Case:
    """What is taken away, in which world, and how that shows; `ahead_ms` are the actors' clocks."""

    name: str
    without: tuple[Patch, ...]
    actors: str
    told: str
    faults: str = "0c0l0r"
    ahead_ms: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name

    def search(self, patch: pytest.MonkeyPatch, *, max_states: int | None = None) -> None:
        for target, instead in self.without:
            patch.setattr(target, instead)
        machine = Machine(replace(world(self.actors.split("+"), faults=self.faults), ahead_ms=self.ahead_ms))
        Invariants(machine)
        try:
            search_nearest(machine, max_states=max_states)
        finally:
            machine.programs.close()


NEEDED = (
    Case("the fence of garbage", (GARBAGE_FENCE,), "upload+garbage", "is deleted, and an entry names it"),
    Case("the generation in a commit", (GENERATION,), "upload+garbage", "is deleted, and an entry names it"),
    Case("the note of that fence", (GARBAGE_NOTE,), "garbage+read", "before the bucket knows of any fence"),
    Case("the check of a commit", (COMMIT,), "slice+delete", "archived, though the stream is deleted"),
    Case("the hold's wait for what is claimed", (WAIT_OF_HOLD,), "fold+hold", "in spite of"),
    Case("the time of the signature", (SIGNATURE,), "fold+hold", "in spite of"),
    Case("the marker before the first delete", (MARKER,), "cut+sweep", "the bucket knows", faults="1c0l0r"),
    Case("the purge of what is still deleted", (PURGE_OF_WHAT_IS_DELETED,), "purge+regret", "lost|0 ms after"),
    Case("AWS's clock", (), "sweep+cut", "0 ms after its entry went", ahead_ms=(HOUR_MS, -HOUR_MS)),
)

BEHIND_OTHERS = (
    Case("the floor", (FLOOR,), "slice+outrun", ""),
    Case("the raise of the generation by removals", (REMOVAL_RAISES,), "slice+outrun", ""),
    Case("both of them", (FLOOR, REMOVAL_RAISES), "slice+outrun", ""),
    Case("the sweep's own look at the log", (REREAD,), "slice+expire", ""),
)


@pytest.mark.parametrize("case", NEEDED, ids=str)
def test_without_it_a_schedule_is_found(case: Case, patch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Violation, match=case.told):
        case.search(patch)


@pytest.mark.parametrize("case", BEHIND_OTHERS, ids=str)
def test_without_it_alone_others_hold(case: Case, patch: pytest.MonkeyPatch) -> None:
    case.search(patch, max_states=2000)


def test_the_page_has_the_table_of_guards() -> None:
    page = PAGE.read_text()
    assert page == written(page), "python -m tests.explore.guard_table"
