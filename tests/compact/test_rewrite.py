from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

import pytest

from coldstream.compact.blocks import AHEAD_BYTES, BLOCK_BYTES, plan_blocks
from coldstream.compact.write import write_group
from coldstream.errors import BadSequenceError, CorruptionError, TruncatedError, UnavailableError
from coldstream.format.chunk import ChunkType, iter_chunks
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES, FragmentIndexRecord, build_footer
from coldstream.format.seekable import SeekTable, decompress_frames
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ObjectStore, RangeRead
from coldstream.units import MIB, ByteRange, ChunkId
from tests.compact.samples import INCARNATION, KEYS, Corruptible, Fragments, of_sizes, small, with_points
from tests.support.archive import ChunkArchive, Spec
from tests.support.compaction import identity_of

ZSTD = Encoding.ZSTD_SEEKABLE


def rewritten(made: Fragments, objects: ObjectStore | None = None) -> FragmentEntry:
    return write_group(objects or made.objects, KEYS, INCARNATION, made.group, ZSTD).entry


@pytest.mark.parametrize("sizes", [(52,), (100, 100, 100), (MIB, 3 * MIB + 1, 100), (BLOCK_BYTES - 8, 9 * MIB)])
def test_fragments_of_any_size_are_rewritten(sizes: tuple[int, ...]) -> None:
    made = of_sizes(*sizes)
    entry = rewritten(made)
    assert entry.encoding is ZSTD
    assert identity_of(made.objects, entry) == made.identity


def test_the_zstd_command_gives_back_the_identity_fragment(zstd: Callable[..., bytes]) -> None:
    made = with_points(4)
    entry = rewritten(made)
    assert zstd("-d", data=made.objects.objects[entry.key]) == made.identity


def test_it_has_a_frame_for_each_point_one_for_the_header_and_one_for_the_footer() -> None:
    made = with_points(4)
    entry = rewritten(made)
    data = made.objects.objects[entry.key]
    assert entry.frames is not None
    assert len(entry.sparse.points) > 4
    sizes = SeekTable.from_bytes(data, source=entry.key, object_bytes=len(data)).frames
    positions = [0, *(point.position for point in entry.sparse.points), 8 + entry.data_bytes, len(made.identity)]
    assert [size.content_bytes for size in sizes] == [after - before for before, after in pairwise(positions)]
    for number, point in enumerate(entry.sparse.points):
        frame = entry.frames.byte_range(number, number + 1)
        content = decompress_frames(
            data[frame.start : frame.end], sizes[number + 1].content_bytes, source=entry.key, position=frame.start
        )
        first = next(iter_chunks(content, source=entry.key, expected=point.chunk_id)).header
        assert (first.chunk_id, first.timestamp) == (point.chunk_id, point.timestamp)


def test_fragments_of_both_encodings_become_one() -> None:
    made = with_points(4)
    expected = made.identity
    alone = rewritten(made)
    data = made.objects.objects[alone.key]
    made.compress(1)
    made.compress(3)
    entry = rewritten(made)
    assert made.objects.objects[entry.key] == data
    assert identity_of(made.objects, entry) == expected


def test_what_was_rewritten_can_be_rewritten_again() -> None:
    made = with_points(2)
    first = rewritten(made)
    again = write_group(made.objects, KEYS, INCARNATION, Group((first,)), ZSTD, level=9).entry
    assert again.object_bytes <= first.object_bytes
    assert identity_of(made.objects, again) == made.identity


def test_an_s3_gets_it_in_parts(s3_objects: ObjectStore) -> None:
    made = with_points(12)
    made.put_into(s3_objects)
    entry = rewritten(made, s3_objects)
    assert entry.object_bytes > 8 * MIB
    made.objects.objects[entry.key] = s3_objects.get_range(entry.key, ByteRange(0, 1 << 32)).data
    assert identity_of(made.objects, entry) == made.identity


@pytest.mark.parametrize("compressed", [(), (0, 1, 2), (1,)])
def test_a_byte_that_is_another_is_found_wherever_it_is(compressed: tuple[int, ...]) -> None:
    made = small()
    for number in compressed:
        made.compress(number)
    for entry in made.group.entries:
        for position in range(entry.object_bytes):
            objects = Corruptible()
            made.put_into(objects)
            objects.corrupt(entry.key, position)
            with pytest.raises(CorruptionError) as caught:
                write_group(objects, KEYS, INCARNATION, made.group, ZSTD)
            assert caught.value.source == entry.key
            assert objects.objects.keys() == made.objects.objects.keys()
            assert not objects.uploads(KEYS.fragment(INCARNATION, made.group.first_offset, 1))


def test_a_corrupt_chunk_is_named_with_its_position_in_its_own_fragment() -> None:
    made = with_points(2)
    objects = Corruptible()
    made.put_into(objects)
    entry = made.group.entries[1]
    objects.corrupt(entry.key, entry.sparse.points[1].position + 1000)
    with pytest.raises(CorruptionError, match="CRC-32 of a chunk's data") as caught:
        write_group(objects, KEYS, INCARNATION, made.group, ZSTD)
    assert (caught.value.source, caught.value.position) == (entry.key, entry.sparse.points[1].position)


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    "field", ["messages", "epoch", "crc32", "first_timestamp", "last_timestamp", "greatest_timestamp", "object_bytes"]
)
def test_what_the_manifest_says_has_to_be_so(field: str, number: int) -> None:
    made = small()
    made.change(number, **{field: 1})
    with pytest.raises(CorruptionError) as caught:
        rewritten(made)
    assert caught.value.source == made.group.entries[number].key


def test_frames_that_do_not_decompress_to_what_was_compressed_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = small()
    monkeypatch.setattr("coldstream.flow.frame_sink.crc32", lambda data: crc32(data) ^ 1)
    with pytest.raises(UnavailableError, match="was given up"):
        rewritten(made)
    assert made.objects.objects.keys() == {entry.key for entry in made.group.entries}


@pytest.mark.parametrize("encoding", list(Encoding))
def test_blocks_leave_nothing_of_an_object_out(encoding: Encoding) -> None:
    made = with_points(1, chunk_bytes=3_000_000)
    if encoding is ZSTD:
        made.compress(0)
    entry = made.group.entries[0]
    blocks = list(plan_blocks(entry))
    assert (blocks[0].byte_range.start, blocks[-1].byte_range.end) == (0, entry.object_bytes)
    assert all(before.byte_range.end == after.byte_range.start for before, after in pairwise(blocks))
    assert sum(block.content_bytes for block in blocks) == made.group.identity_bytes
    assert [block.is_last for block in blocks] == [*([False] * (len(blocks) - 1)), True]
    assert FRAGMENT_HEADER_BYTES <= blocks[0].content_bytes <= BLOCK_BYTES
    assert all(block.content_bytes >= BLOCK_BYTES for block in blocks[1:-2])


def test_a_seek_table_has_to_have_the_frames_of_the_manifest() -> None:
    made = with_points(2)
    made.compress(0)
    entry = made.group.entries[0]
    data = made.objects.objects[entry.key]
    table = SeekTable.from_bytes(data, source=entry.key, object_bytes=len(data))
    header, first, second, *others = table.frames
    moved = (
        header,
        replace(first, compressed_bytes=first.compressed_bytes + 1),
        replace(second, compressed_bytes=second.compressed_bytes - 1),
        *others,
    )
    made.put_bytes(0, data[: -len(table.to_bytes())] + SeekTable(moved).to_bytes())
    with pytest.raises(BadSequenceError, match="positions of frames in the seek table"):
        rewritten(made)


def test_a_fragment_of_tracking_alone_is_rewritten() -> None:
    archive = ChunkArchive()
    entry = archive.put(0, [Spec(1, 5, ChunkType.TRACKING_DELTA)])
    assert entry.last_user_chunk is None
    again = write_group(archive.objects, KEYS, INCARNATION, Group((entry,)), ZSTD).entry
    assert identity_of(archive.objects, again) == archive.objects.objects[entry.key]


def test_a_compressed_fragment_that_ends_inside_a_chunk_is_told_as_that() -> None:
    made = small()
    entry = made.group.entries[2]
    chunk = made.objects.objects[entry.key][FRAGMENT_HEADER_BYTES : FRAGMENT_HEADER_BYTES + entry.data_bytes]
    data = chunk + chunk[:20]
    footer = build_footer(
        FragmentIndexRecord(ChunkId(entry.first_offset), entry.first_timestamp, FRAGMENT_HEADER_BYTES).to_bytes(),
        source=entry.key,
        next_offset=entry.next_offset,
        sequence_number=0,
        data_bytes=len(data),
        chunks_before=0,
        data_position=FRAGMENT_HEADER_BYTES,
    )
    made.change(2, data_bytes=20)
    made.put_bytes(2, b"".join((SEGMENT_HEADER, data, footer)))
    made.compress(2)
    with pytest.raises(TruncatedError) as caught:
        rewritten(made)
    assert caught.value.source == entry.key


class Ahead(MemoryObjects):
    """Counts how far reads are ahead of what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        self.read_bytes += len(byte_range)
        return super().get_range(key, byte_range, if_match=if_match)


def test_reads_run_ahead_by_a_bounded_number_of_bytes() -> None:
    made = with_points(20)
    objects = Ahead()
    made.put_into(objects)
    done = 0

    def on_bytes(size: int) -> None:
        nonlocal done
        done += size
        assert objects.read_bytes - done < AHEAD_BYTES + 3 * BLOCK_BYTES + 8 * MIB

    assert made.group.identity_bytes > 2 * AHEAD_BYTES
    write_group(objects, KEYS, INCARNATION, made.group, ZSTD, on_bytes=on_bytes)
    assert done == made.group.identity_bytes
