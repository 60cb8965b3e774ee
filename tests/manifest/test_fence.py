"""After a fence, what was put before it is not committed."""

from __future__ import annotations

import pytest

from coldstream.errors import LostRaceError, StaleGenerationError
from coldstream.manifest.change import MAX_ITEMS, EntryVersion, PutTombstone, RequireEntry
from coldstream.manifest.commit import plan_commit
from coldstream.manifest.entry import JournalKind, Tombstone
from coldstream.manifest.fence import MAX_DISCARDED, plan_discard, plan_fence
from coldstream.units import Offset
from tests.manifest.world import AT, DUE, World, entry


def test_a_stalled_creator_whose_key_was_collected_commits_nothing() -> None:
    world = World((0, 10))
    stalled = plan_commit(world.around(entry(10, 20)), entry(10, 20), AT)
    world.apply(plan_fence(world.head, 1, AT))
    assert world.changes[-1].event.kind is JournalKind.FENCE_RAISED
    with pytest.raises(LostRaceError):
        world.apply(stalled)
    with pytest.raises(StaleGenerationError):
        world.commit(entry(10, 20))
    world.commit(entry(10, 20, generation=1))


def test_a_fence_never_falls() -> None:
    world = World((0, 10))
    world.apply(plan_fence(world.head, 5, AT))
    world.apply(plan_fence(world.head, 3, AT))
    assert (world.head.generation, world.head.revision) == (5, 3)


def test_what_was_never_committed_is_buried_and_never_is() -> None:
    world = World((0, 10))
    orphan = Tombstone("data/10.3.fragment", DUE, Offset(10), Offset(20), 100)
    world.apply(plan_discard(world.head, [orphan], 4, AT, required=world.log))
    change = world.changes[-1]
    assert change.of(PutTombstone) == (PutTombstone(orphan),)
    assert change.of(RequireEntry) == (RequireEntry(EntryVersion.of(world.log[0])),)
    assert (change.event.key, change.event.first_offset, change.event.next_offset) == (orphan.key, 10, 20)
    with pytest.raises(StaleGenerationError):
        world.commit(entry(10, 20, generation=3))


def test_as_many_as_a_transaction_takes_are_discarded_at_once() -> None:
    orphans = [Tombstone(str(number), DUE, Offset(0), Offset(1), 1) for number in range(MAX_DISCARDED)]
    world = World((0, 10))
    assert plan_discard(world.head, orphans, 1, AT).items == MAX_ITEMS
