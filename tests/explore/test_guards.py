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
from tests.explore.guards import CHOICES, Guards, all_guards, checks, heard
from tests.explore.loose import conditions
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.explore.playing import follow
from tests.explore.schedules import moves_of
from tests.explore.searching import watched
from tests.explore.watching import Invariants

HERE = Path(__file__).parent
FILES = (HERE / "shown.tsv", *sorted((HERE / "shown").glob("*.tsv")))
SHOWN = [line.split("\t") for path in FILES for line in path.read_text().splitlines()]

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
    machine = watched(names, faults, alter)
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


def test_the_list_has_each_condition_of_transactions_and_what_is_shown() -> None:
    listed = {str(one) for one in all_guards(heard(["upload", "bad", "erase", "regret", "fold", "garbage"]))}
    chosen = {f"check: {one}" for one in CHOICES}
    assert {str(one) for text, _, _ in SHOWN for one in Guards.parse(text).all} <= listed | chosen
    assert len(conditions()) == 20
    assert "manifest.commit.check_floors" in checks()


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
HOLD_IN_SWEEP: Patch = ("coldstream.store.holding.held", lambda *_: None)
HOLD_IN_CLAIM: Patch = ("coldstream.manifest.claiming.check_not_held", lambda *_: None)
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
    Case("the hold in the sweep", (HOLD_IN_SWEEP, HOLD_IN_CLAIM), "fold+hold", "in spite of"),
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
