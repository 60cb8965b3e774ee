"""Each guard is needed: without it, a schedule ends badly, and the explorer finds it.

Some guards stand before others: without one of them alone no pair of actors comes to harm, without both one does. Such
pairs of guards are tried together. docs/proof.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coldstream.garbage.fragments import FragmentJudge
from coldstream.garbage.looked_at import LookedAt
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.floors import check_generation, check_not_deleted
from coldstream.manifest.stream import Incarnation
from tests.support.interleavings import interleavings
from tests.support.lifecycle_play import player, reproducible
from tests.support.lifecycle_world import HOUR_MS

Patch = tuple[str, Callable[..., Any]]


def _with_a_note_alone(judge: FragmentJudge, incarnation: Incarnation, window: Sequence[LookedAt]) -> Head:
    head = judge.table.head(incarnation)
    assert head is not None
    judge.fence_notes.note(head, replace(head, generation=1 + max(one.generation for one in window)))
    return head


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


def _without_floor(head: Head, entry: FragmentEntry) -> None:
    check_not_deleted(head)
    check_generation(head, entry)


FLOOR: Patch = ("coldstream.manifest.commit.check_floors", _without_floor)


@dataclass(frozen=True)
class Guard:
    """What is taken away, and which actors come to harm then; `told` is how that shows."""

    name: str
    without: tuple[Patch, ...]
    actors: tuple[str, str]
    told: str
    host_ahead_ms: dict[str, int] = field(default_factory=dict)
    switches: int = 1

    def __str__(self) -> str:
        return self.name


NEEDED = (
    Guard("the fence of garbage", (GARBAGE_FENCE,), ("upload", "garbage"), "named again after it was deleted"),
    Guard("the generation in a commit", (GENERATION,), ("upload", "garbage"), "named again after it was deleted"),
    Guard("the note of that fence", (GARBAGE_NOTE,), ("garbage", "read"), "before the bucket knows of any fence"),
    Guard("the check of a commit", (COMMIT,), ("upload", "delete"), "archived, though the stream is deleted"),
    Guard("the hold in the sweep", (HOLD_IN_SWEEP, HOLD_IN_CLAIM), ("fold", "hold"), "in spite of"),
    Guard("the hold's wait for what is claimed", (WAIT_OF_HOLD,), ("fold", "hold"), "in spite of"),
    Guard("the time of the signature", (SIGNATURE,), ("fold", "hold"), "in spite of"),
    Guard("the marker before the first delete", (MARKER,), ("cut", "sweep"), "the bucket knows"),
    Guard("the purge of what is still deleted", (PURGE_OF_WHAT_IS_DELETED,), ("drop", "regret"), "lost|0 ms after"),
    Guard(
        "AWS's clock",
        (),
        ("sweep", "cut"),
        "0 ms after its entry went",
        host_ahead_ms={"cut": -HOUR_MS, "sweep": HOUR_MS},
    ),
)

BEHIND_OTHERS = (
    Guard("the floor", (FLOOR,), ("upload", "outrun"), ""),
    Guard("the raise of the generation by removals", (REMOVAL_RAISES,), ("upload", "outrun"), ""),
    Guard("both of them", (FLOOR, REMOVAL_RAISES), ("upload", "outrun"), ""),
    Guard("the sweep's own look at the log", (REREAD,), ("upload", "expire"), ""),
)


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with reproducible() as patch:
        yield patch


@pytest.mark.parametrize("guard", NEEDED, ids=str)
def test_without_it_a_schedule_ends_badly(guard: Guard, patch: pytest.MonkeyPatch) -> None:
    for target, instead in guard.without:
        patch.setattr(target, instead)
    with pytest.raises(AssertionError, match=guard.told):
        interleavings(*guard.actors, player(guard.actors, host_ahead_ms=guard.host_ahead_ms), switches=guard.switches)


@pytest.mark.parametrize("guard", BEHIND_OTHERS, ids=str)
def test_without_it_alone_others_hold(guard: Guard, patch: pytest.MonkeyPatch) -> None:
    for target, instead in guard.without:
        patch.setattr(target, instead)
    assert interleavings(*guard.actors, player(guard.actors), switches=2)
