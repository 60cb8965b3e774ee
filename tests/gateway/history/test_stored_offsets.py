"""Stored offsets in the manifest table: what is stored last stays."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.gateway.history.stored_offsets import StoredOffset, find_offset, read_offset, write_offset
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import declared_at, new_stream
from coldstream.store.memory.table import MemoryTable
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.support.archive import STREAM, ChunkArchive, steady

STORED = StoredOffset(STREAM.incarnation, "app", Offset(7), TimestampMs(1000))


@pytest.mark.parametrize("reference", ["app", "ä €", "a\x00b\n", "x" * 255, "\ud800"])
def test_it_is_read_as_it_was_written_whatever_the_reference(reference: str) -> None:
    table = MemoryTable()
    new = replace(STORED, reference=reference, offset=Offset(MAX_OFFSET))
    assert read_offset(table, STREAM.incarnation, reference) is None
    assert write_offset(table, new) == replace(new, revision=1)
    assert read_offset(table, STREAM.incarnation, reference) == replace(new, revision=1)


def test_a_client_may_store_an_earlier_offset_later() -> None:
    table = MemoryTable()
    there = write_offset(table, STORED)
    again = write_offset(table, replace(STORED, offset=Offset(3), at=TimestampMs(1001), revision=there.revision))
    assert (again.offset, again.revision) == (3, 2)


def test_a_write_that_was_held_up_does_not_replace_a_later_one() -> None:
    table = MemoryTable()
    later = write_offset(table, replace(STORED, offset=Offset(9), at=TimestampMs(2000)))
    assert write_offset(table, STORED) == later
    assert write_offset(table, replace(STORED, revision=1, at=TimestampMs(1999))).offset == 7  # it knew the revision


def test_several_writers_leave_the_last_one_whatever_the_order() -> None:
    rng = random.Random(1)
    for _ in range(20):
        table = MemoryTable()
        notes = [replace(STORED, offset=Offset(rng.randrange(50)), at=TimestampMs(at)) for at in range(10)]
        for note in rng.sample(notes, len(notes)):
            write_offset(table, note)
        found = read_offset(table, STREAM.incarnation, "app")
        assert found is not None
        assert found.order == notes[-1].order


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":1,"reference":"app","offset":-1,"at":5}'])
def test_a_malformed_item_is_corrupt(data: bytes) -> None:
    table = MemoryTable()
    item = STORED.to_item()
    table.put_state(StateItem(item.partition, item.key, 1, data))
    with pytest.raises(CorruptionError):
        read_offset(table, STREAM.incarnation, "app")


def test_an_item_of_a_later_release_is_not_guessed_at() -> None:
    table = MemoryTable()
    item = STORED.to_item()
    table.put_state(replace(item, data=item.data.replace(b'"version": 1', b'"version": 2')))
    with pytest.raises(BadVersionError):
        read_offset(table, STREAM.incarnation, "app")


def test_an_item_at_the_wrong_key_is_corrupt() -> None:
    table = MemoryTable()
    item = replace(STORED, reference="other").to_item()
    table.put_state(replace(STORED.to_item(), data=item.data))
    with pytest.raises(CorruptionError):
        read_offset(table, STREAM.incarnation, "app")


@pytest.mark.parametrize(
    ("after_ms", "is_of_the_new_one"), [(-1, False), (59_000, False), (61_000, True)], ids=["before", "soon", "later"]
)
def test_what_was_stored_before_anything_of_a_new_incarnation_was_archived_is_found(
    after_ms: int, *, is_of_the_new_one: bool
) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(5, 1))
    again = ChunkArchive(new_stream("/", "orders", 1_763_700_900_123_456_789))
    again.table = archive.table
    again.add(0, steady(5, 1))
    declared_ms = declared_at(again.stream)
    assert declared_ms == 1_763_700_900_123
    write_offset(archive.table, replace(STORED, at=TimestampMs(declared_ms + after_ms)))
    found = find_offset(archive.table, again.stream, "app")
    assert (found is not None and found.offset == 7) == is_of_the_new_one
    assert find_offset(archive.table, again.stream, "other") is None
    assert find_offset(archive.table, archive.stream, "app") is not None
    write_offset(archive.table, replace(STORED, incarnation=again.stream.incarnation, offset=Offset(3)))
    found = find_offset(archive.table, again.stream, "app")
    assert found is not None
    assert found.offset == 3
