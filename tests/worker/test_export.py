"""Exports: files of rows, and segments that the broker's own tools read; whole, once, and never in another's place."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coldstream.format.index import INDEX_HEADER_BYTES, iter_index
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.ingest.stage import find_rolled
from coldstream.jobs.job import JobState
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.units import MIB, ByteRange, TimestampMs, format_timestamp
from coldstream.worker import segment_place, segment_sink
from coldstream.worker.brokers import BrokerBook
from coldstream.worker.tools import WorkerTools
from tests.replay.archived import recorded
from tests.support.golden import golden_logs
from tests.support.osiris import OsirisLog
from tests.support.segments import START
from tests.worker.samples import SECOND, JobPlayer, SampleArchive, WorkerDiedError, message


@pytest.fixture
def archive() -> SampleArchive:
    return SampleArchive()


@pytest.fixture
def player(archive: SampleArchive) -> JobPlayer:
    return JobPlayer(archive.tools())


def export(path: Path | str, form: str = "segments", **more: Any) -> dict[str, Any]:
    return {"streams": ["orders"], "destination": str(path), "format": form, **more}


def at(second: float) -> str:
    return format_timestamp(TimestampMs(round(START + second * SECOND)))


def files(directory: Path, suffix: str = "segment") -> list[Path]:
    return sorted(directory.glob(f"*/*.{suffix}"))


def chunks(directory: Path) -> bytes:
    """Return all chunks of all segments, without the headers of the files."""
    return b"".join(path.read_bytes()[SEGMENT_HEADER_BYTES:] for path in files(directory))


def source_chunks(archive: SampleArchive) -> bytes:
    entries = archive.archive.log()
    return b"".join(archive.archive.body(entry.key)[8 : 8 + entry.data_bytes] for entry in entries)


@pytest.mark.parametrize(("form", "is_gzip"), [("jsonl", False), ("jsonl", True), ("parquet", False)])
def test_rows_are_in_files_without_partitions(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, form: str, *, is_gzip: bool
) -> None:
    archive.fill("orders", 95)
    job = player.run("export", **export(tmp_path, form, gzip=is_gzip, start="7", end=at(8)))
    assert job.state is JobState.SUCCEEDED, job.reason
    found: list[int] = []
    for path in tmp_path.glob("*.*"):
        if form == "parquet":
            found += pq.read_table(path).column("offset").to_pylist()
        else:
            text = gzip.decompress(path.read_bytes()) if is_gzip else path.read_bytes()
            found += [json.loads(line)["offset"] for line in text.splitlines()]
    assert sorted(found) == list(range(7, 80))


@pytest.mark.parametrize("form", ["parquet", "segments"])
def test_gzip_is_for_lines_of_json_alone(archive: SampleArchive, player: JobPlayer, tmp_path: Path, form: str) -> None:
    archive.fill("orders", 5)
    job = player.run("export", **export(tmp_path, form, gzip=True))
    assert job.state is JobState.FAILED
    assert "gzip" in job.reason


def test_segments_have_every_chunk_byte_for_byte(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_sink, "SEGMENT_BYTES", 2_500)
    archive.fill("orders", 300)
    archive.fill("orders", 200)
    job = player.run("export", **export(tmp_path))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert job.progress.messages == 500
    assert len(files(tmp_path)) > 3
    assert all(path.read_bytes().startswith(SEGMENT_HEADER) for path in files(tmp_path))
    whole = chunks(tmp_path)
    sizes = [path.stat().st_size for path in files(tmp_path)]
    assert all(2_500 <= size < 4_000 for size in sizes[:-1])
    assert sum(sizes) - len(sizes) * SEGMENT_HEADER_BYTES == len(whole)
    bodies = b"".join(archive.raw("orders").values())
    assert len(whole) > len(bodies)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["plain", "sub-batches", "tracking"])
def test_exported_chunks_are_the_brokers_own_and_osiris_reads_them(
    name: str, tmp_path: Path, osiris: Callable[[Path], OsirisLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_sink, "SEGMENT_BYTES", 30_000)
    source = recorded(name)
    tools = WorkerTools(source.table, source.objects, Keys(), BrokerBook(), tmp_path, environment={})
    fields = export(tmp_path, streams=[name])
    job = JobPlayer(tools).run("export", **{**fields, "vhost": source.stream.vhost})
    assert job.state is JobState.SUCCEEDED, job.reason
    (log,) = [log for log in golden_logs() if log.stream == name]
    own = b"".join(path.read_bytes()[SEGMENT_HEADER_BYTES:] for path in sorted(log.directory.glob("*.segment")))
    assert chunks(tmp_path) == own
    (directory,) = {path.parent for path in files(tmp_path)}
    assert directory.name == source.stream.incarnation
    read = [chunk.chunk_id for chunk in osiris(directory).chunks()]
    assert read == [chunk.chunk_id for chunk in log.chunks]
    for path in files(tmp_path, "index"):
        with path.open("rb") as file:
            records = list(iter_index(file, source=str(path)))
        segment = path.with_suffix(".segment").read_bytes()
        assert records[0].position == SEGMENT_HEADER_BYTES == INDEX_HEADER_BYTES
        assert all(segment[record.position] >> 4 == 5 for record in records)


def test_exported_segments_can_be_announced(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 100)
    assert player.run("export", **export(tmp_path)).state is JobState.SUCCEEDED
    (directory,) = {path.parent for path in files(tmp_path)}
    after = archive.next_offsets["orders"]
    (directory / f"{after:020}.segment").write_bytes(SEGMENT_HEADER)
    assert [(one.first_offset, one.next_offset) for one in find_rolled(directory)] == [(0, 100)]


def test_a_window_has_whole_chunks(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 100)
    job = player.run("export", **export(tmp_path, start="13", end="57"))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert [path.name for path in files(tmp_path)] == [f"{10:020}.segment"]
    assert job.progress.messages == 50


def test_a_segment_ends_before_a_gap(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 20)
    archive.add("orders", [(START, [message(b"after")] * 10)], hole=7)
    job = player.run("export", **export(tmp_path))
    assert (job.state, job.skipped.count) == (JobState.FAILED, 7)
    assert [int(path.stem) for path in files(tmp_path)] == [0, 27]


def test_a_killed_export_goes_on_and_each_chunk_is_there_once(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after a file was put into its place, and before anybody was told."""
    monkeypatch.setattr(segment_sink, "SEGMENT_BYTES", 1_500)
    archive.fill("orders", 300)
    job = player.create("export", max_attempts=50, **export(tmp_path))
    real = segment_place.DirectoryPlace.publish
    for number in itertools.count(1):
        left = [number]

        def publish(
            self: segment_place.DirectoryPlace, name: str, file: Path, left: list[int] = left, real: Any = real
        ) -> None:
            real(self, name, file)
            left[0] -= 1
            if not left[0]:
                raise WorkerDiedError

        with monkeypatch.context() as patch:
            patch.setattr(segment_place.DirectoryPlace, "publish", publish)
            try:
                player.attempt(job)
            except WorkerDiedError:
                assert number < 40
                continue
        break
    assert player.store.get(job.id).state is JobState.SUCCEEDED
    assert number > 3
    fresh = tmp_path / "again"
    assert player.run("export", **export(fresh)).state is JobState.SUCCEEDED
    assert chunks(fresh) == b"".join(path.read_bytes()[8:] for path in files(tmp_path) if "again" not in str(path))


def test_a_stop_gives_up_the_file_that_is_being_written(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_sink, "SEGMENT_BYTES", 1_500)
    archive.fill("orders", 300)
    looks = itertools.count()
    job = player.attempt(player.create("export", **export(tmp_path)), worker_stops=lambda: next(looks) > 12)
    assert job.state is JobState.WAITING
    before = {path: path.read_bytes() for path in files(tmp_path)}
    assert before
    assert not list(tmp_path.glob(".*"))
    assert player.attempt(job).state is JobState.SUCCEEDED
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_foreign_file_is_never_replaced(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 30)
    foreign = tmp_path / archive.stream("orders").incarnation / f"{0:020}.segment"
    foreign.parent.mkdir()
    foreign.write_bytes(b"somebody's own")
    job = player.run("export", **export(tmp_path))
    assert job.state is JobState.FAILED
    assert "not replaced" in job.reason
    assert foreign.read_bytes() == b"somebody's own"


def test_segments_go_to_a_bucket_in_parts_and_a_second_export_finds_them(
    player: JobPlayer, archive: SampleArchive, s3_objects: S3Objects
) -> None:
    size = 40_000
    archive.add("orders", [(START, [bytes([n]) * size] * 20) for n in range(25)])  # 20 MB: more than one part
    destination = f"s3://{s3_objects.bucket}/exports/one"
    for _ in range(2):
        job = player.run("export", **export(destination))
        assert job.state is JobState.SUCCEEDED, job.reason
    key = f"exports/one/{archive.stream('orders').incarnation}/{0:020}.segment"
    body = s3_objects.get_range(key, ByteRange(0, 64 * MIB)).data
    assert body.startswith(SEGMENT_HEADER)
    assert all(bytes([n]) * size in body for n in range(25))
    s3_objects.put(key, b"somebody's own")
    job = player.run("export", **export(destination))
    assert job.state is JobState.FAILED
    assert "not replaced" in job.reason
