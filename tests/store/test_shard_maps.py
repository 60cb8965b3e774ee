from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.errors import CorruptionError, LostRaceError, UnavailableError
from coldstream.manifest.shard_changes import bound
from coldstream.manifest.shard_events import ShardEvent, ShardEventKind, map_bytes
from coldstream.manifest.state_item import StateItem
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable
from coldstream.store.shard_maps import (
    SHARDS,
    ShardMapWriter,
    event_key,
    events_partition,
    find_map,
    iter_maps,
    map_events,
    map_key,
    restore_map,
)
from tests.manifest.shard_samples import AT, sample_map

KEYS = Keys("archive/")
KIND = ShardEventKind


@pytest.fixture
def control() -> ControlObjects:
    return ControlObjects(MemoryObjects(), KEYS)


def test_a_map_comes_back_with_its_journal(table: ManifestTable, control: ControlObjects) -> None:
    first, second = sample_map(), bound(sample_map(), AT)
    writer = ShardMapWriter(table, control, "anna")
    writer.write(first, KIND.DECLARE, AT)
    writer.write(second, KIND.BIND, AT, "größer")
    assert find_map(table, "/", "orders") == second
    assert list(iter_maps(table)) == [second]
    assert list(map_events(table, "/", "orders")) == [
        (ShardEvent(1, AT, KIND.DECLARE, "anna"), first),
        (ShardEvent(2, AT, KIND.BIND, "anna", "größer"), second),
    ]
    assert find_map(table, "other", "orders") is None
    assert list(map_events(table, "/", "payments")) == []


def test_of_two_changes_to_one_revision_one_happens_with_its_event(
    table: ManifestTable, control: ControlObjects
) -> None:
    writer = ShardMapWriter(table, control)
    writer.write(sample_map(), KIND.DECLARE, AT)
    with pytest.raises(LostRaceError):
        writer.write(sample_map(4), KIND.DECLARE, AT)
    assert [found for _, found in map_events(table, "/", "orders")] == [sample_map()]
    assert [found for _, found in control.shard_maps()] == [sample_map()]


def test_the_bucket_has_every_revision_in_the_bytes_of_the_journal(control: ControlObjects) -> None:
    table = MemoryTable()
    writer = ShardMapWriter(table, control, "anna")
    for name in ("orders", "payments"):
        writer.write(sample_map(name=name), KIND.DECLARE, AT)
        writer.write(bound(sample_map(name=name), AT), KIND.BIND, AT)
    assert len(list(control.shard_maps())) == 4
    for name in ("orders", "payments"):
        assert [one for one in control.shard_maps() if one[1].name == name] == list(map_events(table, "/", name))
    journaled = table.state_item(events_partition("/", "orders"), event_key(2))
    assert journaled is not None
    objects = control.objects
    assert isinstance(objects, MemoryObjects)
    assert objects.objects[KEYS.shard_note("/", "orders", 2)] == journaled.data


class BrokenObjects(MemoryObjects):
    def put(self, key: str, body: bytes) -> None:
        raise UnavailableError(f"{key} of {len(body)} bytes")


def test_a_map_whose_writer_died_before_its_object_is_protected_by_the_next(control: ControlObjects) -> None:
    table = MemoryTable()
    with pytest.raises(UnavailableError):
        ShardMapWriter(table, ControlObjects(BrokenObjects(), KEYS), "anna").write(sample_map(), KIND.DECLARE, AT)
    found = find_map(table, "/", "orders")
    assert found == sample_map()
    writer = ShardMapWriter(table, control, "bert")
    for _ in range(2):
        writer.protect(found)
        assert list(control.shard_maps()) == [(ShardEvent(1, AT, KIND.DECLARE, "anna"), sample_map())]


def test_a_map_that_its_journal_does_not_have_is_not_protected(control: ControlObjects) -> None:
    table = MemoryTable()
    table.put_state(StateItem(SHARDS, map_key("/", "orders"), 1, map_bytes(sample_map())))
    with pytest.raises(CorruptionError, match="journal"):
        ShardMapWriter(table, control).protect(sample_map())
    assert list(control.shard_maps()) == []


def test_a_map_at_another_key_is_corruption(control: ControlObjects) -> None:
    control.write_shard_map(ShardEvent(1, AT, KIND.DECLARE), sample_map())
    objects = control.objects
    assert isinstance(objects, MemoryObjects)
    data = objects.objects[KEYS.shard_note("/", "orders", 1)]
    for key in (KEYS.shard_note("/", "orders", 2), KEYS.shard_note("/", "payments", 1)):
        objects.objects[key] = data
        with pytest.raises(CorruptionError, match="another key"):
            list(control.shard_maps())
        del objects.objects[key]


def test_a_map_is_restored_at_its_revision_and_goes_on_from_there(
    table: ManifestTable, control: ControlObjects
) -> None:
    """The object of the first revision is missing: its writer died before it, and nobody looked."""
    second, third = bound(sample_map(), AT), replace(sample_map(), revision=3)
    events = [(ShardEvent(2, AT, KIND.BIND), second), (ShardEvent(3, AT, KIND.SEAL), third)]
    for _ in range(2):
        restore_map(table, events)
        assert find_map(table, "/", "orders") == third
        assert list(map_events(table, "/", "orders")) == events
    ShardMapWriter(table, control).write(replace(third, revision=4), KIND.SEAL, AT)
    assert [event.revision for event, _ in map_events(table, "/", "orders")] == [2, 3, 4]
    restore_map(table, events)
    found = find_map(table, "/", "orders")
    assert found is not None
    assert found.revision == 4


def test_nothing_is_restored_of_nothing() -> None:
    table = MemoryTable()
    restore_map(table, [])
    assert list(iter_maps(table)) == []
