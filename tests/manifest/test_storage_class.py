from __future__ import annotations

import pytest

from coldstream.manifest.entry import JournalKind, StorageClass
from coldstream.manifest.storage_class import in_class, plan_storage_class
from tests.manifest.world import AT, DUE, World


@pytest.mark.parametrize("storage_class", [*StorageClass, None])
def test_an_entry_says_in_which_class_its_object_is(storage_class: StorageClass | None) -> None:
    world = World((0, 10), (10, 20))
    first, second = world.log
    copy = in_class(first, "copy", 1, storage_class)
    world.apply(plan_storage_class(world.head, first, copy, (), at=AT, due_at=DUE))
    assert world.log == [copy, second]
    assert [(one.key, one.due_at) for one in world.state.tombstones.values()] == [(first.key, DUE)]
    event = world.changes[-1].event
    assert (event.kind, event.key) == (JournalKind.STORAGE_CLASS_CHANGED, "copy")
    assert event.detail == (storage_class or "STANDARD")
    world.check_replay()


def test_two_classes_must_be_restored_before_a_read() -> None:
    cold = {one for one in StorageClass if one.must_be_restored}
    assert cold == {StorageClass.GLACIER, StorageClass.DEEP_ARCHIVE}
