"""Replay into tables: every row once, however often it is run and wherever it is killed."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from coldstream.errors import GapError, InvalidQueryError
from coldstream.format.chunk import ChunkType
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import CompactionPolicy, plan_groups
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.replay.request import ReplayRequest
from coldstream.replay.tables import span_files, write
from coldstream.replay.tables.directory import BucketDirectory, LocalDirectory, TableDirectory
from coldstream.replay.tables.layout import FileFormat, Partitioning
from coldstream.replay.tables.marks import Marks, OffsetSpan
from coldstream.replay.tables.report import TableReport
from coldstream.replay.tables.row_transform import Row, RowTransform
from coldstream.replay.tables.run import claim_table, replay_to_table
from coldstream.replay.tables.table import Table
from coldstream.rows.batches import batches
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.objects import S3Objects
from coldstream.units import MAX_TIMESTAMP_MS, Offset, TimestampMs
from tests.support.archive import STREAM, ChunkArchive, Spec, random_archive, steady
from tests.support.compaction import Compaction

DAY_MS = 24 * 3600 * 1000


class KilledError(Exception):
    """The process ends here."""


class KillingPlace(BucketDirectory):
    """Ends the process before or after one of its writes."""

    def __init__(self, objects: MemoryObjects, at: int) -> None:
        super().__init__(objects, "table")
        self._left = at

    def create(self, name: str, content: bytes) -> bool:
        self._step()
        made = super().create(name, content)
        self._step()
        return made

    def put(self, name: str, file: Path) -> None:
        self._step()
        super().put(name, file)
        self._step()

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise KilledError


def archive_of(fragments: int = 6, *, day_ms: int = DAY_MS // 2) -> ChunkArchive:
    """Fragments of three chunks of two messages, two fragments a day."""
    archive = ChunkArchive(sparse_bytes=1)
    for number in range(fragments):
        archive.add(number * 6, steady(2, number * day_ms, number * day_ms + 1, number * day_ms + 2))
    return archive


def run(
    archive: ChunkArchive, place: TableDirectory, start: int = 0, end: int = 1_000_000, **options: Any
) -> TableReport:
    spec = {key: options.pop(key) for key in ("form", "partitioning", "transform", "file_bytes") if key in options}
    table = Table(place, **({"form": FileFormat.PARQUET, "partitioning": Partitioning()} | spec))
    claim_table(table)
    given = {"span_bytes": 500} | options
    source = ReplayRequest(archive.stream, Offset(start), Offset(end), given.pop("skip_gaps", False))
    report = TableReport(source)
    replay_to_table(archive.table, archive.objects, table, report, **given)
    return report


def data_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and "_coldstream" not in path.parts)


def offsets(root: Path) -> list[int]:
    return sorted(offset for path in data_files(root) for offset in pq.ParquetFile(path).read()["offset"].to_pylist())


def offsets_in(objects: MemoryObjects, tmp_path: Path) -> list[int]:
    return sorted(
        json.loads(line)["offset"]
        for key, data in objects.objects.items()
        if "_coldstream" not in key
        for line in data.splitlines()
    )


def user_offsets(archive: ChunkArchive, start: int = 0, end: int = 1_000_000) -> list[int]:
    return [
        offset
        for chunk in archive.chunks
        if chunk.header.type is ChunkType.USER
        for offset in range(chunk.header.chunk_id, chunk.header.next_offset)
        if start <= offset < end
    ]


def test_every_row_is_in_the_partition_of_its_day(tmp_path: Path) -> None:
    archive = archive_of()
    report = run(archive, LocalDirectory(tmp_path))
    assert (report.messages, report.rows, report.present, report.again) == (36, 36, 0, 0)
    assert report.files == len(data_files(tmp_path))
    days = {path.parent.relative_to(tmp_path).as_posix(): offsets(path.parent) for path in data_files(tmp_path)}
    assert days == {
        "stream=orders/date=1970-01-01": list(range(12)),
        "stream=orders/date=1970-01-02": list(range(12, 24)),
        "stream=orders/date=1970-01-03": list(range(24, 36)),
    }


def test_a_reader_of_hive_partitions_finds_all_columns(tmp_path: Path) -> None:
    run(archive_of(), LocalDirectory(tmp_path))
    found = ds.dataset(tmp_path, format="parquet", partitioning="hive").to_table().sort_by("offset")
    assert found["offset"].to_pylist() == list(range(36))
    assert set(found["stream"].to_pylist()) == {"orders"}
    assert found["value"].to_pylist()[7] == archive_of().message(7)


def test_rows_are_in_order_of_their_offsets(tmp_path: Path) -> None:
    run(archive_of(), LocalDirectory(tmp_path), partitioning=Partitioning(()))
    found = [offset for path in data_files(tmp_path) for offset in pq.ParquetFile(path).read()["offset"].to_pylist()]
    assert found == list(range(36))


@pytest.mark.parametrize("form", [FileFormat.JSONL, FileFormat.JSONL_GZIP])
def test_lines_of_json_have_the_columns_that_are_no_directories(tmp_path: Path, form: FileFormat) -> None:
    archive = archive_of(1)
    run(archive, LocalDirectory(tmp_path), form=form)
    (path,) = data_files(tmp_path)
    assert path.name.endswith(f"-0000.{form}")
    data = path.read_bytes() if form is FileFormat.JSONL else gzip.decompress(path.read_bytes())
    first = json.loads(data.splitlines()[0])
    value = archive.message(0)
    assert first == {"value": value.decode(), "offset": 0, "chunk_timestamp": "1970-01-01T00:00:00.000Z"}


def test_a_second_run_adds_nothing(tmp_path: Path) -> None:
    archive = archive_of()
    run(archive, LocalDirectory(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    report = run(archive, LocalDirectory(tmp_path))
    assert (report.rows, report.files, report.spans, report.present) == (0, 0, 0, 36)
    assert {path: path.stat().st_mtime_ns for path in data_files(tmp_path)}.items() <= before.items()


def test_a_second_run_adds_what_is_new(tmp_path: Path) -> None:
    archive = archive_of()
    run(archive, LocalDirectory(tmp_path))
    archive.add(36, steady(2, 6 * DAY_MS))
    report = run(archive, LocalDirectory(tmp_path))
    assert report.rows == 2
    assert offsets(tmp_path) == list(range(38))


@pytest.mark.parametrize("seed", range(25))
def test_ranges_that_overlap_are_written_once(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    archive = random_archive(rng)
    objects = MemoryObjects()
    tail = archive.chunks[-1].header.next_offset
    wanted: set[int] = set()
    for _ in range(4):
        start = rng.randrange(tail)
        end = rng.randrange(start + 1, tail + 2)
        wanted |= set(user_offsets(archive, start, end))
        run(
            archive,
            BucketDirectory(objects, "table"),
            start,
            end,
            skip_gaps=True,
            form=FileFormat.JSONL,
            span_bytes=rng.choice([1, 300, 5000]),
            file_bytes=rng.choice([1, 10_000]),
        )
    assert offsets_in(objects, tmp_path) == sorted(wanted)


@pytest.mark.parametrize("at", range(0, 40, 2))
def test_a_run_that_is_killed_at_any_write_is_taken_up(at: int, tmp_path: Path) -> None:
    archive = archive_of()
    objects = MemoryObjects()
    options: dict[str, Any] = {"form": FileFormat.JSONL, "file_bytes": 1, "span_bytes": 300}
    killed = False
    try:
        run(archive, KillingPlace(objects, at), **options)
    except KilledError:
        killed = True
    assert killed
    report = run(archive, BucketDirectory(objects, "table"), **options)
    assert offsets_in(objects, tmp_path) == list(range(36))
    assert report.again <= 1
    assert run(archive, BucketDirectory(objects, "table"), **options).present == 36


@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_is_killed_again_and_again_ends_with_every_row_once(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    archive = random_archive(rng, gaps=0)
    objects = MemoryObjects()
    for _ in range(200):
        try:
            run(
                archive,
                KillingPlace(objects, rng.randrange(2, 60)),
                form=FileFormat.JSONL,
                file_bytes=300,
                span_bytes=rng.choice([200, 600]),
            )
        except KilledError:
            continue
        break
    else:
        pytest.fail("it never ended")
    assert offsets_in(objects, tmp_path) == user_offsets(archive)


def test_a_killed_run_is_taken_up_after_a_compaction(tmp_path: Path) -> None:
    archive = archive_of()
    objects = MemoryObjects()
    with pytest.raises(KilledError):
        run(archive, KillingPlace(objects, 9), form=FileFormat.JSONL, file_bytes=1)
    compaction = Compaction(archive)
    (group,) = plan_groups(
        compaction.log(), CompactionPolicy(TimestampMs(MAX_TIMESTAMP_MS), 1 << 30, Encoding.ZSTD_SEEKABLE)
    )
    for _ in compaction.replace(group, compaction.store(group, Encoding.ZSTD_SEEKABLE)):
        pass
    run(archive, BucketDirectory(objects, "table"), form=FileFormat.JSONL, file_bytes=1)
    assert offsets_in(objects, tmp_path) == list(range(36))


def test_what_a_killed_run_left_goes_where_the_transformation_is_another(tmp_path: Path) -> None:
    archive = archive_of(1)
    objects = MemoryObjects()
    with pytest.raises(KilledError):
        run(archive, KillingPlace(objects, 7), form=FileFormat.JSONL, file_bytes=1, span_bytes=10_000)
    assert len(offsets_in(objects, tmp_path)) == 4

    def last(row: Row) -> Row | None:
        return row if row["offset"] == 5 else None

    options: dict[str, Any] = {"form": FileFormat.JSONL, "file_bytes": 1, "span_bytes": 10_000, "transform": last}
    report = run(archive, BucketDirectory(objects, "table"), **options)
    assert (report.messages, report.rows, report.again) == (6, 1, 1)
    assert offsets_in(objects, tmp_path) == [5]


def test_a_span_that_another_run_began_is_taken_over(tmp_path: Path) -> None:
    archive = archive_of()
    objects = MemoryObjects()
    place = BucketDirectory(objects, "table")

    class Late(BucketDirectory):
        """Another run marks its span right before this one does."""

        def create(self, name: str, content: bytes) -> bool:
            if name.endswith("/00000000000000000000.begun"):
                place.create(name, json.dumps({"end": 15}).encode())
            return super().create(name, content)

    run(archive, Late(objects, "table"), form=FileFormat.JSONL)
    assert offsets_in(objects, tmp_path) == list(range(36))
    assert Marks(place, STREAM).done[0] == OffsetSpan(Offset(0), Offset(15))


def test_a_gap_ends_a_run_behind_what_came_before_it(tmp_path: Path) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(2, 1))
    archive.add(10, steady(2, 2))
    for _ in range(2):
        with pytest.raises(GapError) as caught:
            run(archive, LocalDirectory(tmp_path))
        assert (caught.value.first_offset, caught.value.next_offset) == (2, 10)
        assert offsets(tmp_path) == [0, 1]


def test_a_gap_that_was_passed_over_is_written_when_it_is_filled(tmp_path: Path) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(2, 1))
    archive.add(10, steady(2, 2))
    report = run(archive, LocalDirectory(tmp_path), skip_gaps=True)
    assert [(gap.first_offset, gap.next_offset) for gap in report.gaps] == [(2, 10)]
    assert offsets(tmp_path) == [0, 1, 10, 11]
    archive.add(2, steady(8, 1))
    assert run(archive, LocalDirectory(tmp_path)).rows == 8
    assert offsets(tmp_path) == list(range(12))


def test_a_table_stays_of_its_kind(tmp_path: Path) -> None:
    run(archive_of(1), LocalDirectory(tmp_path))
    for other in ({"form": FileFormat.JSONL}, {"partitioning": Partitioning(())}):
        with pytest.raises(InvalidQueryError, match="the one there is parquet, partitioned by stream,date"):
            run(archive_of(1), LocalDirectory(tmp_path), **other)


def test_a_clock_that_runs_backwards_leaves_every_row_in_its_day(tmp_path: Path) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(1, DAY_MS, DAY_MS - 1, DAY_MS, 0))
    run(archive, LocalDirectory(tmp_path))
    assert offsets(tmp_path / "stream=orders/date=1970-01-01") == [1, 3]
    assert offsets(tmp_path / "stream=orders/date=1970-01-02") == [0, 2]


def test_tracking_chunks_are_no_rows(tmp_path: Path) -> None:
    archive = ChunkArchive()
    archive.add(0, [Spec(1, 1, ChunkType.TRACKING_DELTA), *steady(2, 1)])
    archive.add(3, [Spec(1, 1, ChunkType.TRACKING_DELTA)])
    assert run(archive, LocalDirectory(tmp_path)).rows == 2
    assert run(archive, LocalDirectory(tmp_path)).present == 4
    assert offsets(tmp_path) == [1, 2]


def test_hostile_names_stay_in_the_table(tmp_path: Path) -> None:
    stream = StreamId("/", "../../../evil/=\x00%2F", Incarnation("__evil_1763700000000000001"))
    archive = ChunkArchive(stream)
    archive.add(0, steady(2, 1))
    run(archive, LocalDirectory(tmp_path / "a" / "table"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    (path,) = data_files(tmp_path / "a" / "table")
    assert path.parent.parent.name == "stream=..%2F..%2F..%2Fevil%2F%3D%00%252F"
    found = ds.dataset(tmp_path / "a" / "table", format="parquet", partitioning="hive").to_table()
    assert set(found["stream"].to_pylist()) == {stream.name}


def test_two_lives_of_a_stream_are_both_in_the_table(tmp_path: Path) -> None:
    for declared in (1, 2):
        archive = ChunkArchive(StreamId("/", "orders", Incarnation(f"__orders_176370000000000000{declared}")))
        archive.add(0, steady(2, 1))
        run(archive, LocalDirectory(tmp_path))
    assert offsets(tmp_path) == [0, 0, 1, 1]


def test_progress_is_told_in_offsets(tmp_path: Path) -> None:
    told: list[int] = []
    run(archive_of(), LocalDirectory(tmp_path), on_offsets=told.append)
    assert told == [6] * 6  # a slice at a time
    run(archive_of(), LocalDirectory(tmp_path), on_offsets=told.append)
    assert sum(told) == 72


def test_the_same_rows_make_the_same_files(tmp_path: Path) -> None:
    def content(root: Path) -> Counter[bytes]:
        run(archive_of(), LocalDirectory(root))
        return Counter(path.read_bytes() for path in data_files(root))

    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_files_are_the_same_however_the_stream_was_cut_into_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_files, "ROW_GROUP_BYTES", 2000)
    specs = steady(1, *range(300))

    def content(root: Path, *, fragments: int, form: FileFormat, transform: RowTransform | None) -> Counter[bytes]:
        archive = ChunkArchive(sparse_bytes=1)
        size = len(specs) // fragments
        for first in range(0, len(specs), size):
            archive.add(first, specs[first : first + size])
        run(archive, LocalDirectory(root), form=form, file_bytes=9000, span_bytes=1 << 20, transform=transform)
        return Counter(path.read_bytes() for path in data_files(root))

    def odd(row: Row) -> Row | None:
        return row if row["offset"] % 2 else None

    for form in (FileFormat.PARQUET, FileFormat.JSONL):
        for transform in (None, odd):
            name = f"{form}-{transform is None}"
            whole = content(tmp_path / f"{name}-whole", fragments=1, form=form, transform=transform)
            assert len(whole) == (5 if transform is None else 3)
            for fragments in (3, 100):
                found = content(tmp_path / f"{name}-{fragments}", fragments=fragments, form=form, transform=transform)
                assert found == whole


def test_chunks_of_one_message_become_rows_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ChunkArchive(sparse_bytes=1 << 20)
    archive.add(0, steady(1, *range(1000)))
    made: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for rows in batches(*arguments, **options):
            made.append(rows.num_rows)
            yield rows

    monkeypatch.setattr(write, "batches", counted)
    run(archive, LocalDirectory(tmp_path), span_bytes=1 << 20)
    assert made == [1000]


def test_memory_is_that_of_a_file_not_of_a_stream(tmp_path: Path) -> None:
    archive = ChunkArchive(sparse_bytes=1, message_bytes=1000)
    archive.add(0, steady(10, *range(40)))
    run(archive, LocalDirectory(tmp_path), partitioning=Partitioning(()), file_bytes=100_000, span_bytes=1 << 20)
    sizes = [pq.ParquetFile(path).read().nbytes for path in data_files(tmp_path)]
    assert len(sizes) == 4
    assert max(sizes) < 130_000


def test_a_table_in_s3_is_written_once(s3_objects: S3Objects) -> None:
    archive, place = archive_of(2), BucketDirectory(s3_objects, "table")
    assert run(archive, place, form=FileFormat.JSONL).rows == 12
    assert run(archive, place, form=FileFormat.JSONL).rows == 0
    lines = [line for name in place.names("stream=orders/") for line in place.read(name).splitlines()]
    assert sorted(json.loads(line)["offset"] for line in lines) == list(range(12))
