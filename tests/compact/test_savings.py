"""What a dry run says, held against what a run does."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from coldstream.compact.blocks import plan_blocks
from coldstream.compact.commit import CommitOutcome, commit
from coldstream.compact.frame_parts import PART_BYTES
from coldstream.compact.merge_plan import RequestCounts, count_requests
from coldstream.compact.part_upload import MIN_PART_BYTES as BORDER
from coldstream.compact.savings import (
    EVENT_UNITS,
    HEAD_UNITS,
    PUT_USD,
    Savings,
    dry_run_summary,
    forecast_of,
    savings_of,
    write_units,
)
from coldstream.compact.write import write_group
from coldstream.lifecycle.sweep import sweep
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteTombstone,
    PutTombstone,
    Relink,
    ReplaceEntry,
    RequireEntry,
)
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import RangeRead
from coldstream.units import MIB, ByteRange
from tests.compact.samples import INCARNATION, KEYS, Fragments, of_sizes
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.compacting import LONG_AFTER, log_of, options_of, run, stores_at
from tests.support.compaction import Compaction


def archive_of(fragments: int) -> ChunkArchive:
    archive = ChunkArchive(message_bytes=2000)
    for number in range(fragments):
        archive.add(number * 3, steady(3, number))
    return archive


def test_what_a_merge_would_save_is_what_it_saves() -> None:
    archive = archive_of(9)
    forecast = forecast_of(archive.table, archive.objects, archive.stream, options_of(), NOW)
    report = run(archive, options_of())
    savings = forecast.savings
    assert not savings.is_estimate
    assert (savings.fragments, savings.fragments_after) == (report.fragments, report.fragments_after) == (9, 1)
    assert (savings.object_bytes, savings.object_bytes_after) == (report.object_bytes, report.object_bytes_after)
    assert savings.saved_bytes == report.object_bytes - report.object_bytes_after > 0


def test_a_dry_run_changes_nothing_and_a_merge_reads_no_object() -> None:
    archive = archive_of(9)
    archive.table.requests.clear()
    archive.objects.requests.clear()
    forecast_of(archive.table, archive.objects, archive.stream, options_of(), NOW)
    assert not archive.objects.requests
    assert archive.table.requests.keys() == {"GetItem", "Query"}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_what_compression_would_save_is_estimated_from_samples(share: float) -> None:
    rng = random.Random(1)
    random_bytes = int(300_000 * share)
    rest = bytes(300_000 - random_bytes)
    made = Fragments(*([rng.randbytes(random_bytes) + rest for _ in range(3)] for _ in range(4)))
    savings = savings_of(made.objects, [made.group], options_of(Encoding.ZSTD_SEEKABLE))
    assert savings.is_estimate
    assert savings.object_bytes_after / savings.object_bytes == pytest.approx(share, abs=0.05)
    assert made.objects.requests["GetObject"] == 1


def test_a_few_samples_do_for_many_groups() -> None:
    made = Fragments(*([bytes(3000)] for _ in range(40)))
    groups = [Group((entry,)) for entry in made.group.entries]
    savings_of(made.objects, groups, options_of(Encoding.ZSTD_SEEKABLE))
    assert made.objects.requests["GetObject"] == 6


def test_what_is_compressed_already_counts_as_it_is() -> None:
    made = Fragments(*([bytes(30_000)] for _ in range(3)))
    for number in range(3):
        made.compress(number)
    made.objects.requests.clear()
    savings = savings_of(made.objects, [made.group], options_of(Encoding.ZSTD_SEEKABLE))
    assert savings.saved_bytes == 0
    assert not made.objects.requests


def test_money_is_by_the_list() -> None:
    one = Savings(object_bytes=1024**4, object_bytes_after=0)
    assert one.saved_usd_a_month == pytest.approx(23.552)
    made = Fragments(*([bytes(1000)] for _ in range(8)))
    merge = savings_of(made.objects, [made.group], options_of())
    units = 8 * 3 + 8 * 4 + (2 + 3) * (1 + 1 + 1)
    assert merge.cost_usd == pytest.approx(3 * 5e-6 + 9 * 4e-7 + units * 6.25e-7)
    assert (merge + merge).cost_usd == pytest.approx(2 * merge.cost_usd)


@pytest.mark.parametrize(
    "sizes",
    [(100,), (100,) * 40, (BORDER, 100, BORDER), (100, 2 * BORDER, 100), (BORDER // 2,) * 5, (BORDER,) * 3],
)
@pytest.mark.parametrize("encoding", list(Encoding))
def test_the_requests_of_s3_that_are_told_are_those_that_are_made(sizes: tuple[int, ...], encoding: Encoding) -> None:
    made = of_sizes(*sizes)
    if encoding is Encoding.IDENTITY:
        told = count_requests(made.group)
    else:
        blocks = sum(1 for entry in made.group.entries for _ in plan_blocks(entry))
        told = RequestCounts(puts=3, gets=1 + blocks)
    made.objects.requests.clear()
    written = write_group(made.objects, KEYS, INCARNATION, made.group, encoding, level=1)
    count = made.objects.requests
    puts = ("CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload")
    assert told == RequestCounts(sum(count[call] for call in puts), count["GetObject"] + count["HeadObject"])
    assert written.entry.object_bytes < PART_BYTES or encoding is Encoding.IDENTITY


def test_small_fragments_are_read_by_one_request_each() -> None:
    made = of_sizes(*[200] * 300)
    write_group(made.objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
    assert made.objects.requests["GetObject"] == 300


class Counting(MemoryTable):
    """Adds up what writes cost, by DynamoDB's list: items of a kilobyte."""

    units = 0

    def apply(self, change: Change) -> None:
        super().apply(change)
        tombstones = len(change.of(PutTombstone)) + len(change.of(DeleteTombstone))
        in_index = 1 + len(change.of(DeleteEntry)) + len(change.of(ReplaceEntry)) + len(change.of(Relink))
        self.units += 3 * in_index + 2 * (tombstones + 1 + len(change.of(RequireEntry)))


@pytest.mark.parametrize("fragments", [1, 2, 4, 5, 9, 50, 130])
def test_the_units_that_are_told_are_those_that_are_written(fragments: int) -> None:
    archive = ChunkArchive()
    archive.table = table = Counting()
    for number in range(fragments):
        archive.add(number * 3, steady(3, number))
    log = log_of(table, STREAM.incarnation)
    told = write_units(Group(log))
    table.units = 0
    merged = Compaction(archive).store(Group(log), Encoding.IDENTITY)
    assert commit(table, archive.stream.incarnation, Group(log), merged, now=lambda: NOW) is CommitOutcome.COMMITTED
    sweep(stores_at(table, archive.objects, LONG_AFTER), archive.stream.incarnation)
    # Beside those there are one or two versions that are only looked at, and the sweep's claim, which comes and goes in
    # a change each, for a thousand objects.
    claim = 2 * (HEAD_UNITS + EVENT_UNITS)
    assert told <= table.units - claim <= told + 4


def test_what_is_due_to_be_deleted_is_told() -> None:
    archive = archive_of(9)
    run(archive, options_of())
    forecast = forecast_of(archive.table, archive.objects, archive.stream, options_of(), LONG_AFTER)
    assert forecast.due_objects == 9
    assert forecast.due_bytes == sum(len(data) for data in archive.objects.objects.values()) - max(
        map(len, archive.objects.objects.values())
    )


def test_an_empty_archive_saves_nothing() -> None:
    archive = ChunkArchive()
    forecast = forecast_of(MemoryTable(), archive.objects, archive.stream, options_of(target_bytes=MIB), NOW)
    assert forecast.savings == Savings()
    told = json.loads(json.dumps(dry_run_summary([forecast, forecast])))
    assert (told["dry_run"], told["fragments"], len(told["streams"])) == (True, 0, 2)
    stream = told["streams"][0]
    assert (stream["due_objects"], stream["due_bytes"]) == (0, 0)
    assert (stream["vhost"], stream["name"], stream["incarnation"]) == ("/", "orders", STREAM.incarnation)


def test_a_compressed_object_is_sent_in_parts_of_a_size_the_last_one_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Fragments(*([random.Random(1).randbytes(3000)] for _ in range(4)))

    def savings(part_bytes: int) -> Savings:
        monkeypatch.setattr("coldstream.compact.savings.PART_BYTES", part_bytes)
        return savings_of(made.objects, [made.group], options_of(Encoding.ZSTD_SEEKABLE))

    after = savings(PART_BYTES).object_bytes_after
    one_part = savings(after).cost_usd
    assert savings(PART_BYTES).cost_usd == one_part
    assert savings(after - 1).cost_usd == pytest.approx(one_part + PUT_USD)
    assert savings(-(-after // 10)).cost_usd == pytest.approx(one_part + 9 * PUT_USD)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_items_next_kilobyte_begins_where_the_last_one_ends(*, is_compressed: bool) -> None:
    made = Fragments([bytes(30_000)])
    if is_compressed:
        made.compress(0)
    (entry,) = made.group.entries
    rest = 1024 - 400 - len(entry.sparse.to_bytes()) - (len(entry.frames.to_bytes()) if entry.frames else 0)
    units = [write_units(Group((replace(entry, key="k" * size),))) for size in (rest - 1, rest, rest + 1)]
    # A unit for each kilobyte twice in the transaction, once in the index by time, and twice in the event.
    assert units == [units[0], units[0], units[0] + 5]


def test_savings_are_told_by_name() -> None:
    told = Savings(9, 2, 1024**3, 0, 5, is_estimate=True, cost_usd=0.12345678).to_json()
    assert told == {
        "fragments": 9,
        "fragments_after": 2,
        "object_bytes": 1024**3,
        "object_bytes_after": 0,
        "is_estimate": True,
        "saved_usd_a_month": 0.023,
        "cost_usd": 0.123457,
    }


def test_savings_add_up_field_by_field() -> None:
    one, other = Savings(1, 2, 3, 4, 5, is_estimate=False, cost_usd=6.0), Savings(10, 20, 30, 40, 50, True, 60.0)
    assert one + other == other + one == Savings(11, 22, 33, 44, 55, is_estimate=True, cost_usd=66.0)


def test_a_sample_is_two_mebibytes_from_the_middle_of_the_largest_fragment() -> None:
    class Watched(MemoryObjects):
        def get_range(self, key: str, byte_range: ByteRange, **options: Any) -> RangeRead:
            asked.append((key, byte_range))
            return super().get_range(key, byte_range, **options)

    asked: list[tuple[str, ByteRange]] = []
    made = Fragments([bytes(100_000)] * 3, [bytes(1 << 20)] * 7, [bytes(1 << 20)] * 2)
    objects = Watched()
    made.put_into(objects)
    savings_of(objects, [made.group], options_of(Encoding.ZSTD_SEEKABLE))
    largest = made.group.entries[1]
    start = largest.sparse.points[len(largest.sparse.points) // 2].position
    assert 0 < largest.sparse.points[1].position < start
    assert asked == [(largest.key, ByteRange(start, start + 2 * MIB))]
