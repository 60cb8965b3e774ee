from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream.compact.merge import _FragmentReader
from coldstream.compact.merge_plan import MAX_COPY_BYTES, PartPlan, plan_parts
from coldstream.compact.part_upload import MIN_PART_BYTES
from coldstream.compact.write import write_group
from coldstream.errors import CorruptionError, StoppedError
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import MIB, ByteRange
from tests.compact.samples import INCARNATION, KEYS, Corruptible, Fragments, of_sizes, small
from tests.support.compaction import identity_of
from tests.support.segments import STREAM, MemoryArchive, write_stream

BORDER = MIN_PART_BYTES


def merged(made: Fragments, objects: ObjectStore) -> bytes:
    """Merge a group, and return the object, which is what the entry says."""
    written = write_group(objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
    data = objects.get_range(written.entry.key, ByteRange(0, 1 << 32)).data
    assert len(data) == written.entry.object_bytes
    return data


def groups(made: Fragments, sizes: list[int]) -> Group:
    """Give entries other sizes, of which no object is: for plans alone."""
    entries = zip(made.group.entries, sizes, strict=True)
    return Group(tuple(replace(entry, data_bytes=size) for entry, size in entries))


def gathered_bytes(plan: list[PartPlan]) -> int:
    return sum(part.size_bytes for part in plan if not part.is_copied)


def test_a_merged_fragment_is_the_one_that_would_have_been_cut_at_once(tmp_path: Path) -> None:
    write_stream(tmp_path / "stream", chunks=600, max_segment_bytes=1_000_000)
    parts, whole = MemoryArchive(fragment_bytes=30_000), MemoryArchive(fragment_bytes=10_000_000)
    for archive in (parts, whole):
        archive.announce(tmp_path / "stream")
    for expected in whole.log():
        entries = [entry for entry in parts.log() if entry.segment_offset == expected.first_offset]
        assert len(entries) > 5
        group = Group(tuple(entries))
        written = write_group(parts.objects, Keys("archive/"), STREAM.incarnation, group, Encoding.IDENTITY)
        assert parts.body(written.entry.key) == whole.body(expected.key)
        assert written.entry == replace(
            expected, key=written.entry.key, generation=1, sparse=group.sparse(), prior_offset=entries[0].prior_offset
        )


@pytest.mark.parametrize(
    "sizes",
    [
        (100,),
        (100, 100, 100),
        (BORDER - 9, 100),
        (BORDER - 8, 100),
        (BORDER, BORDER),
        (100, BORDER, 100),
        (100, 2 * BORDER - 109, 100),
        (100, 2 * BORDER - 108, 100),
        (100, 2 * BORDER - 107, BORDER - 1, 100),
        (100, BORDER - 108, BORDER - 1, 1000),
    ],
)
def test_fragments_of_any_size_are_merged(sizes: tuple[int, ...]) -> None:
    made = of_sizes(*sizes)
    assert merged(made, made.objects) == made.identity


def test_an_s3_copies_parts_and_takes_others(s3_objects: ObjectStore) -> None:
    made = of_sizes(BORDER + 5, 100, BORDER, 3 * BORDER, 1000)
    made.put_into(s3_objects)
    assert merged(made, s3_objects) == made.identity


@given(sizes=st.lists(st.sampled_from([60, 1000, BORDER - 1, BORDER, BORDER + 9, 64 * MIB, 600 * MIB]), min_size=1))
@settings(max_examples=200)
def test_parts_are_all_chunks_in_order_and_of_sizes_that_s3_takes(sizes: list[int]) -> None:
    group = groups(Fragments(*([b""] for _ in sizes)), sizes)
    plan = list(plan_parts(group))
    pieces = [piece for part in plan for piece in part.pieces]
    for entry, is_first in zip(group.entries, [True, *([False] * (len(sizes) - 1))], strict=True):
        of_entry = [piece.byte_range for piece in pieces if piece.key == entry.key]
        assert of_entry[0].start == (0 if is_first else 8)
        assert of_entry[-1].end == 8 + entry.data_bytes
        assert all(before.end == after.start for before, after in pairwise(of_entry))
    assert [piece.key for piece in pieces] == sorted(piece.key for piece in pieces)
    assert all(part.size_bytes >= BORDER for part in plan[:-1])
    assert all(part.size_bytes <= MAX_COPY_BYTES and len(part.pieces) == 1 for part in plan if part.is_copied)
    assert all(part.size_bytes < 2 * BORDER for part in plan if not part.is_copied)
    assert not plan[-1].is_copied


def test_large_fragments_do_not_pass_through() -> None:
    sizes = [64 * MIB] * 7
    plan = list(plan_parts(groups(Fragments(*([b""] for _ in sizes)), sizes)))
    assert gathered_bytes(plan) == 0
    assert len(plan) == len(sizes) + 1


def test_a_small_fragment_between_large_ones_takes_no_more_of_one_than_it_needs() -> None:
    sizes = [64 * MIB, MIB, 64 * MIB]
    plan = list(plan_parts(groups(Fragments(*([b""] for _ in sizes)), sizes)))
    assert gathered_bytes(plan) == BORDER
    assert [part.is_copied for part in plan] == [True, False, True, False]


@pytest.mark.parametrize(("rest", "are_copied"), [(BORDER, [False, True, False]), (BORDER - 1, [False, False])])
def test_what_is_left_of_a_large_fragment_is_copied_if_s3_takes_it_as_a_part(rest: int, are_copied: list[bool]) -> None:
    header_and_small = 8 + 100
    sizes = [100, BORDER - header_and_small + rest]
    plan = list(plan_parts(groups(Fragments(*([b""] for _ in sizes)), sizes)))
    assert [part.is_copied for part in plan] == are_copied


def test_what_passes_through_is_counted() -> None:
    made = of_sizes(BORDER, 1000, BORDER)
    footers = [entry.object_bytes - 8 - entry.data_bytes for entry in made.group.entries]
    written = write_group(made.objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
    assert written.copied_bytes == BORDER + 8
    assert written.read_bytes == 1000 + BORDER + sum(footers)
    assert written.sent_bytes + written.copied_bytes == made.group.identity_bytes
    assert made.objects.requests["UploadPartCopy"] == 1


def test_a_byte_that_is_another_is_found_wherever_it_is() -> None:
    made = small()
    for number, entry in enumerate(made.group.entries):
        # The headers of all but the first are left behind, unread.
        for position in range(0 if number == 0 else 8, entry.object_bytes):
            objects = Corruptible()
            made.put_into(objects)
            objects.corrupt(entry.key, position)
            with pytest.raises(CorruptionError) as caught:
                write_group(objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
            assert caught.value.source == entry.key
            assert objects.objects.keys() == made.objects.objects.keys()
            assert not objects.uploads(KEYS.fragment(INCARNATION, made.group.first_offset, 1))


def test_a_corrupt_chunk_of_what_was_copied_is_named() -> None:
    made = of_sizes(BORDER, BORDER)
    objects = Corruptible()
    made.put_into(objects)
    key = made.group.entries[1].key
    objects.corrupt(key, BORDER // 2)
    with pytest.raises(CorruptionError, match="CRC-32 of a chunk's data") as caught:
        write_group(objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
    assert (caught.value.source, caught.value.position) == (key, 8)


def test_a_compressed_fragment_is_not_merged_as_identity() -> None:
    made = small()
    made.compress(1)
    with pytest.raises(ValueError, match="cannot be merged"):
        write_group(made.objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)


def test_a_merged_fragment_can_be_merged_again() -> None:
    made = small()
    written = write_group(made.objects, KEYS, INCARNATION, Group(made.group.entries[:2]), Encoding.IDENTITY)
    again = write_group(
        made.objects, KEYS, INCARNATION, Group((written.entry, made.group.entries[2])), Encoding.IDENTITY
    )
    assert identity_of(made.objects, again.entry) == made.identity
    assert again.entry.generation == 2


def test_each_read_asks_first_whether_to_stop() -> None:
    made = of_sizes(100, 100)
    made.objects.requests.clear()
    reader = _FragmentReader(made.objects, made.group, lambda: True)
    with pytest.raises(StoppedError):
        reader.read_footer(made.group.entries[0])
    assert not made.objects.requests
