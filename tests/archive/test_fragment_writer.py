"""The keys that a fragment's object may be written to, if others took the first ones."""

from __future__ import annotations

from zlib import crc32

import pytest

from coldstream.archive.draft import CutFragment, FragmentDraft
from coldstream.archive.fragment_writer import MAX_GENERATIONS, FragmentWriter
from coldstream.errors import UnavailableError
from coldstream.format.writer import make_chunk
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ByteRange, ChunkId, Epoch, Offset, TimestampMs
from tests.store.samples import NOW, ORDERS
from tests.support.compacting import LONG_AFTER
from tests.support.removing import head_of

OBJECT = ByteRange(0, 1 << 20)


def fragment() -> CutFragment:
    header, data = make_chunk([b"x"], chunk_id=ChunkId(5), timestamp=TimestampMs(0), epoch=Epoch(1))
    draft = FragmentDraft("copy", Offset(0), sequence_number=0, chunks_before=0, data_position=8, spool_dir=None)
    draft.write(data)
    draft.add(header, crc32(data))
    return draft.finish()


def key(generation: int) -> str:
    return Keys().fragment(ORDERS.incarnation, Offset(5), generation)


def writer_of(objects: MemoryObjects) -> FragmentWriter:
    return FragmentWriter(MemoryTable(), objects, Keys(), ORDERS, lambda: NOW)


@pytest.mark.parametrize("taken", [0, 1, 5, MAX_GENERATIONS - 1])
def test_a_fragment_goes_to_the_first_key_that_is_free(taken: int) -> None:
    objects = MemoryObjects()
    for generation in range(taken):
        objects.put(key(2 + generation), b"others" * (generation + 1))
    entry = writer_of(objects).put(fragment(), 2)
    assert (entry.key, entry.generation) == (key(2 + taken), 2 + taken)
    data = objects.get_range(entry.key, OBJECT).data
    assert (len(data), crc32(data)) == (entry.object_bytes, entry.crc32)


def test_a_fragment_that_is_there_already_is_found_at_its_key_and_others_of_its_size_are_not_it() -> None:
    objects = MemoryObjects()
    first = writer_of(objects).put(fragment(), 0)
    assert writer_of(objects).put(fragment(), 0) == first
    data = bytearray(objects.get_range(first.key, OBJECT).data)
    data[20] ^= 1
    objects.put(key(0), bytes(data))
    assert writer_of(objects).put(fragment(), 0).key == key(1)
    assert objects.get_range(key(0), OBJECT).data == data


def test_an_object_that_no_entry_names_is_discarded_once() -> None:
    writer = writer_of(MemoryObjects())
    named, left = writer.put(fragment(), 0), writer.put(fragment(), 1)
    assert writer.commit(named)
    writer.discard_orphans()
    assert [one.key for one in writer.table.tombstones(ORDERS.incarnation, LONG_AFTER, 10)] == [left.key]
    revision = head_of(writer.table, ORDERS.incarnation).revision
    writer.discard_orphans()
    assert head_of(writer.table, ORDERS.incarnation).revision == revision


def test_a_fragment_without_a_free_key_is_tried_again_later() -> None:
    assert MAX_GENERATIONS == 16, "what a version of an agent may find taken"
    objects = MemoryObjects()
    for generation in range(MAX_GENERATIONS):
        objects.put(key(generation), b"others")
    one = fragment()
    with pytest.raises(UnavailableError, match=f"16 objects with other bytes are at the keys of {5:020}"):
        writer_of(objects).put(one, 0)
    assert one.body.closed
    assert len(objects.objects) == MAX_GENERATIONS
