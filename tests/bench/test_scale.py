"""docs/scale.md says what the model does, and the load generator drives the code that ships."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.aws import BUCKET, sdk_environment
from bench.harness import environment
from bench.load import make_segment, stream
from bench.local_s3 import LocalS3
from bench.scale import fitted_slope
from bench.scale_load import StreamArchive, append_fragments, list_streams, look_up
from bench.scale_model import FRAGMENT_UNITS, MOST_FRAGMENTS_S, SMALL_FRAGMENT_UNITS, Load, write_units
from coldstream.archive.upload import Uploader
from coldstream.ingest.stage import stage
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.objects import S3Objects
from coldstream.units import MIB
from tests.support.cloudformation import TEMPLATE
from tests.support.costs import counted, number

PAGE = (TEMPLATE.parent / "docs/scale.md").read_text(encoding="utf-8")
WHOLE = Load(100_000, 10e9, 10e15)
LAGGING = Load(100_000, 10e9, 10e15, span_s=20)
PRICED_AS_PUTS = (
    "PutObject",
    "ListMultipartUploads",
    "CreateMultipartUpload",
    "UploadPart",
    "CompleteMultipartUpload",
)


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        ("announcements", [load.segments_s for load in (WHOLE, LAGGING)]),
        ("fragments", [load.fragments_s for load in (WHOLE, LAGGING)]),
        ("write units", [load.write_units_s for load in (WHOLE, LAGGING)]),
        ("PUTs", [load.puts_s for load in (WHOLE, LAGGING)]),
        ("GETs and HEADs", [load.gets_s for load in (WHOLE, LAGGING)]),
        ("upload functions at once", [load.calls_at_once for load in (WHOLE, LAGGING)]),
        *((what, [WHOLE.dollars[what], LAGGING.dollars[what]]) for what in WHOLE.dollars),
        ("**in all**", [sum(load.dollars.values()) for load in (WHOLE, LAGGING)]),
    ],
)
def test_the_page_says_what_the_model_does(row: str, figures: list[float]) -> None:
    table = PAGE.partition("## What the load takes")[2]
    (cells_of_row,) = re.findall(rf"^\| {re.escape(row)} \|([^\n]*\|[^\n]*\|[^\n]*)\|", table, re.MULTILINE)[:1]
    said = [cell.strip() for cell in cells_of_row.split("|")][1:3]
    assert [number(one) for one in said] == pytest.approx(figures, abs=0.5)


def test_the_page_says_how_much_is_stored() -> None:
    table = PAGE.partition("| in all |")[2]
    said = dict(re.findall(r"^\| (\w[\w ]*) \|[^|\n]*\| ([\d,]+) \w+ \|$", table, re.MULTILINE))
    assert number(said["fragments"]) == pytest.approx(WHOLE.stored_fragments / 1e6, abs=0.5)
    assert number(said["items"]) == pytest.approx(WHOLE.items / 1e6, abs=0.5)
    assert number(said["table and index"]) == pytest.approx(WHOLE.table_bytes / 1e9, abs=0.5)


def test_units_are_those_of_begun_kilobytes_twice_and_once_more_in_the_index() -> None:
    assert write_units(1024, 1024, 1024) == 3 + 2 + 3
    assert write_units(1024, 1025, 1025) == 3 + 4 + 6
    assert (FRAGMENT_UNITS, SMALL_FRAGMENT_UNITS) == (13, 8)


@pytest.mark.parametrize("size_bytes", [20_000, 70 << 20])
def test_a_segment_asks_the_bucket_for_what_the_model_says(size_bytes: int, tmp_path: Path) -> None:
    segment = make_segment(tmp_path, size_bytes=size_bytes, message_bytes=(200, 4000))
    with LocalS3() as s3, environment(sdk_environment(s3_url=s3.url, dynamodb_url=s3.url)):
        objects = S3Objects(BUCKET)
        with counted() as counts:
            staged = stage(segment, stream(0), objects, Keys())
            result = Uploader(MemoryTable(), objects, Keys(), 64 * MIB).upload(staged)
    load = Load(1, segment.size_bytes, 0, segment_bytes=segment.size_bytes)  # one segment a second
    puts = sum(counts[one] for one in PRICED_AS_PUTS) - 1  # the names of a stream, with its first segment
    assert puts - result.fragments_committed == pytest.approx(load.puts_s - load.fragments_s)
    assert counts["GetObject"] + counts["HeadObject"] == load.gets_s
    assert counts.keys() <= {*PRICED_AS_PUTS, "GetObject", "HeadObject", "DeleteObject"}


def test_the_page_says_where_a_stream_ends() -> None:
    assert f"{MOST_FRAGMENTS_S:.0f} fragments, or {MOST_FRAGMENTS_S * (64 << 20) / 1e9:.1f} GB/s" in PAGE


def test_a_slope_is_the_power_of_the_size() -> None:
    assert fitted_slope([10, 100, 1000], [7, 7, 7]) == pytest.approx(0)
    assert fitted_slope([10, 100, 1000], [3, 30, 300]) == pytest.approx(1)
    assert fitted_slope([10, 1000], [1, 10]) == pytest.approx(0.5)
    assert fitted_slope([10], [5]) == 0


def test_fragments_are_committed_and_found_by_the_code_that_ships() -> None:
    table = MemoryTable()
    assert append_fragments(table, stream(1), range(5)).steps == 5
    head = table.head(stream(1).incarnation)
    assert head is not None
    assert (head.fragments, head.gaps) == (5, 0)
    for by_time in (False, True):
        assert look_up(table, MemoryObjects(), stream(1), 5, 7, by_time=by_time).steps == 7


def test_streams_are_archived_and_listed_by_the_code_that_ships(tmp_path: Path) -> None:
    table, objects = MemoryTable(), MemoryObjects()
    segment = make_segment(tmp_path, size_bytes=20_000, message_bytes=(200, 400))
    archive = StreamArchive(table, objects, segment)
    assert archive.counted(range(3)).steps == 3
    assert list_streams(table).steps == 3
    assert all((head := table.head(stream(one).incarnation)) and head.fragments == 1 for one in range(3))
