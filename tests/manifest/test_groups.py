"""Which fragments become one, and the entry of that one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coldstream.format.fragment import MAX_FRAGMENT_BYTES
from coldstream.manifest.entry import Encoding, FragmentEntry, LastUserChunk, StorageClass
from coldstream.manifest.frames import Frames
from coldstream.manifest.groups import CompactionPolicy, Group, plan_groups
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.units import MIB, ChunkId, Epoch, Offset, TimestampMs
from tests.manifest.samples import fragment

NEVER = TimestampMs(1 << 60)


def planned(log: list[FragmentEntry], policy: CompactionPolicy) -> list[tuple[int, int]]:
    return [(int(group.first_offset), int(group.next_offset)) for group in plan_groups(log, policy)]


def log_of(*sizes: int, packed: tuple[int, ...] = ()) -> list[FragmentEntry]:
    return [
        fragment(number, number + 1, size=size, time=number, packed=number in packed)
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((10, 10, 10), [(0, 3)]),
        ((10,), []),
        ((), []),
        ((40, 40, 21, 20), [(0, 2), (2, 4)]),
        ((40, 40, 20, 20), [(0, 3)]),
        ((10, 50, 10, 10), [(2, 4)]),
        ((10, 20, 10, 200), [(0, 3)]),
        ((49, 49, 49), [(0, 2)]),
    ],
)
def test_neighbours_are_merged_up_to_the_target_and_large_ones_left(
    sizes: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    assert planned(log_of(*sizes), CompactionPolicy(NEVER, 100 * MIB)) == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((40, 20), [(0, 2)]),
        ((41, 20), []),
        ((20, 40), [(0, 2)]),
        ((45, 10, 10), [(1, 3)]),
        ((5, 5, 45, 4, 4), [(0, 2), (3, 5)]),
        ((45, 12, 3, 2), [(2, 4)]),
        ((30, 10, 10), [(0, 3)]),
    ],
)
def test_one_that_is_most_of_its_group_is_left_and_those_beside_it_are_groups_of_their_own(
    sizes: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    assert planned(log_of(*sizes), CompactionPolicy(NEVER, 100 * MIB)) == expected


def test_what_has_to_be_compressed_is_never_too_large_and_does_not_draw_in_what_is_compressed() -> None:
    policy = CompactionPolicy(NEVER, 100 * MIB, Encoding.ZSTD_SEEKABLE)
    assert planned(log_of(10, 45, packed=(0,)), policy) == [(0, 2)]
    assert planned(log_of(45, 10, 10, packed=(0,)), policy) == [(1, 3)]
    assert planned(log_of(10, 45, 10, packed=(1,)), policy) == [(0, 1), (2, 3)]


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("size", [1, 3, 10])
def test_a_log_that_grows_between_runs_is_rewritten_a_few_times_and_not_each_time(
    encoding: Encoding, size: int
) -> None:
    policy = CompactionPolicy(NEVER, 64 * MIB, encoding)
    log: list[FragmentEntry] = []
    rewritten_bytes = 0
    for number in range(200):
        log.append(fragment(number, number + 1, size=size))
        for group in list(plan_groups(log, policy)):
            frames = Frames(tuple(range(17, 18 + len(group.sparse().points))))
            merged = group.merged(
                key="merged",
                generation=1,
                object_bytes=1,
                crc32=0,
                frames=None if encoding is Encoding.IDENTITY else frames,
            )
            begin = log.index(group.entries[0])
            log[begin : begin + len(group.entries)] = [merged]
            rewritten_bytes += group.data_bytes
    assert rewritten_bytes <= (math.log(64 / size, 1.5) + 2) * 200 * size * MIB
    finished, growing = 200 * size // 32, math.log(64 / size, 1.5) + 2
    assert len(log) <= finished + growing


def test_nothing_is_merged_over_a_gap() -> None:
    log = [fragment(0, 10), fragment(10, 20), fragment(30, 40), fragment(40, 50), fragment(60, 70)]
    assert planned(log, CompactionPolicy(NEVER)) == [(0, 20), (30, 50)]


def test_what_is_not_old_enough_is_left_also_between_others() -> None:
    log = [fragment(n, n + 1, time=time) for n, time in enumerate([1, 2, 99, 3, 4, 100])]
    assert planned(log, CompactionPolicy(TimestampMs(99))) == [(0, 2), (3, 5)]


def test_merging_leaves_what_is_compressed() -> None:
    assert planned(log_of(10, 10, 10, 10, 10, packed=(2,)), CompactionPolicy(NEVER)) == [(0, 2), (3, 5)]


def test_compressing_takes_large_ones_and_single_ones_and_leaves_what_is_done() -> None:
    policy = CompactionPolicy(NEVER, 100 * MIB, Encoding.ZSTD_SEEKABLE)
    assert planned(log_of(200), policy) == [(0, 1)]
    assert planned(log_of(60, 60, packed=(0,)), policy) == [(1, 2)]
    assert planned(log_of(10, packed=(0,)), policy) == []
    assert planned(log_of(10, 60, 10, packed=(0,)), policy) == [(0, 3)]


def test_a_merged_fragment_is_one_that_the_format_can_describe() -> None:
    half = MAX_FRAGMENT_BYTES // 2 // MIB
    log = [fragment(0, 1, size=half), fragment(1, 2, size=half - 1), fragment(2, 3, size=1)]
    assert planned(log, CompactionPolicy(NEVER, 1 << 40)) == [(0, 3)]
    crowded = [replace(log[0], chunks=MIB // 8), replace(log[1], chunks=MIB // 8), fragment(2, 3, size=half)]
    assert planned(crowded, CompactionPolicy(NEVER, 1 << 40)) == [(1, 3)]


def test_a_group_is_of_neighbours() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Group(())
    with pytest.raises(ValueError, match="not neighbours"):
        Group((fragment(0, 10), fragment(11, 20)))


def point(chunk_id: int, ordinal: int, position: int, time: int, before: int) -> SparsePoint:
    return SparsePoint(ChunkId(chunk_id), ordinal, position, TimestampMs(time), TimestampMs(before))


def test_the_merged_entry_counts_positions_and_chunks_on_and_leaves_out_points_that_come_too_soon() -> None:
    first = replace(
        fragment(0, 10, size=2, time=50),
        sparse=SparseIndex((point(0, 0, 8, 50, 50), point(6, 3, 8 + MIB, 40, 50))),
        last_user_chunk=LastUserChunk(ChunkId(7), 4711, TimestampMs(50)),
        prior_offset=Offset(0),
        prior_timestamp=TimestampMs(-5),
        generation=3,
    )
    small = replace(fragment(10, 12, time=90), data_bytes=1000)
    third = replace(
        fragment(12, 20, size=2, time=20),
        sparse=SparseIndex((point(12, 0, 8, 20, 20), point(17, 2, 8 + MIB, 10, 20))),
        epoch=Epoch(7),
    )
    group = Group((first, small, third))
    merged = group.merged(key="k", generation=4, object_bytes=123, crc32=9)
    assert merged.sparse.points == (
        point(0, 0, 8, 50, 50),
        point(6, 3, 8 + MIB, 40, 50),
        point(10, 4, 8 + 2 * MIB, 90, 50),
        point(17, 10, 8 + 3 * MIB + 1000, 10, 90),
    )
    assert merged.last_user_chunk == first.last_user_chunk
    assert (merged.first_timestamp, merged.last_timestamp, merged.greatest_timestamp) == (50, 20, 90)
    assert (merged.chunks, merged.records, merged.messages, merged.data_bytes) == (12, 20, 3, 4 * MIB + 1000)
    assert (merged.epoch, merged.segment_offset, merged.key, merged.generation) == (7, 0, "k", 4)
    assert (merged.prior_offset, merged.prior_timestamp) == (0, -5)
    assert (merged.object_bytes, merged.crc32, merged.encoding) == (123, 9, Encoding.IDENTITY)
    assert group.identity_bytes == 8 + 4 * MIB + 1000 + 8 + 12 * 20 + 46


def test_the_last_user_chunk_of_a_group_is_where_it_comes_to_lie() -> None:
    last = LastUserChunk(ChunkId(11), 500, TimestampMs(1))
    group = Group((fragment(0, 10, size=2), replace(fragment(10, 20), last_user_chunk=last), fragment(20, 30)))
    merged = group.merged(key="k", generation=1, object_bytes=1, crc32=0, frames=Frames((17, 20, 30, 40)))
    assert merged.last_user_chunk == replace(last, position=500 + 2 * MIB)
    assert merged.encoding is Encoding.ZSTD_SEEKABLE


def test_what_is_in_a_colder_class_is_left_and_ends_a_group() -> None:
    log = log_of(10, 10, 10, 10, 10)
    log[2] = replace(log[2], storage_class=StorageClass.STANDARD_IA)
    assert planned(log, CompactionPolicy(NEVER)) == [(0, 2), (3, 5)]


@pytest.mark.parametrize("erased", [(), (1,), (0, 1, 2)])
def test_a_merged_fragment_is_erased_if_any_of_its_fragments_is(erased: tuple[int, ...]) -> None:
    log = [replace(entry, erased=number in erased) for number, entry in enumerate(log_of(10, 10, 10))]
    assert Group(tuple(log)).merged(key="m", generation=1, object_bytes=1, crc32=0).erased == bool(erased)
