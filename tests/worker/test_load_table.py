"""Loads into a table: the exact window, what is skipped, kills and edits, without a broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coldstream.jobs.job import Job, JobState
from coldstream.jobs.run import JobRun
from coldstream.lifecycle.holds import put_hold
from coldstream.replay.tables import run as table_run
from coldstream.units import Offset, TimestampMs, format_timestamp
from coldstream.worker import load_sink
from coldstream.worker.kinds import kinds_of
from tests.support.segments import START
from tests.worker.samples import SECOND, JobPlayer, SampleArchive, WorkerDiedError, message


@pytest.fixture
def archive() -> SampleArchive:
    return SampleArchive()


@pytest.fixture
def player(archive: SampleArchive) -> JobPlayer:
    return JobPlayer(archive.tools())


def to_table(path: Path, **more: Any) -> dict[str, Any]:
    return {"target": {"type": "table", "path": str(path), "format": "jsonl", "partition_by": "none"}, **more}


def offsets(path: Path) -> list[int]:
    """List the offsets of all rows, in order; a row that is there twice is twice in the list."""
    rows = [json.loads(line) for file in path.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(row["offset"] for row in rows)


def at(second: float) -> str:
    return format_timestamp(TimestampMs(round(START + second * SECOND)))


def test_all_of_a_stream_is_in_the_table_once(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 95)
    job = player.run("load", streams=["orders"], **to_table(tmp_path))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(tmp_path) == list(range(95))
    assert (job.progress.done, job.progress.total, job.progress.messages) == (95, 95, 95)
    assert job.progress.bytes > 0


def test_patterns_mean_every_stream_that_matches(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    for name in ("orders-1", "orders-2", "returns", "orders-[x]"):
        archive.fill(name, 10)
    job = player.run("load", streams=["orders-?", "orders-[x]"], **to_table(tmp_path))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(tmp_path) == sorted([*range(10)] * 3)


@pytest.mark.parametrize("streams", [["nothing"], ["nothing*"]])
def test_streams_that_are_not_there_fail_the_job(player: JobPlayer, tmp_path: Path, streams: list[str]) -> None:
    job = player.run("load", streams=streams, **to_table(tmp_path))
    assert job.state is JobState.FAILED
    assert "nothing" in job.reason


def test_offsets_cut_inside_a_chunk(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 95)
    job = player.run("load", streams=["orders"], start="13", end="57", **to_table(tmp_path))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(tmp_path) == list(range(13, 57))


def test_a_window_cuts_at_messages_by_their_own_time(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    """Creation times run from 5 s before their chunk's on; messages without one have their chunk's."""
    own = [START + 10 * SECOND + number * 100 for number in range(100)]
    chunks = []
    for first in range(0, 100, 20):
        bodies = [
            message(b"%d" % n, created=own[n]) if n % 10 else message(b"%d" % n) for n in range(first, first + 20)
        ]
        chunks.append((own[first + 19] + 5 * SECOND, bodies))
    archive.add("orders", chunks)
    times = {n: own[n] if n % 10 else own[n // 20 * 20 + 19] + 5 * SECOND for n in range(100)}
    window = (START + 13 * SECOND, START + 17 * SECOND)
    job = player.run("load", streams=["orders"], start=at(13), end=at(17), **to_table(tmp_path))
    assert job.state is JobState.SUCCEEDED, job.reason
    # The scan begins at the first chunk at or after the start: no earlier one can have a message of the window.
    assert offsets(tmp_path) == [n for n in range(100) if window[0] <= times[n] < window[1]]
    assert job.skipped.count == 0


def test_a_window_by_chunk_cuts_at_chunks(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.add("orders", [(START + n * SECOND, [message(b"x", created=START)] * 3) for n in range(10)])
    job = player.run("load", streams=["orders"], start=at(2), end=at(5), window_by="chunk", **to_table(tmp_path))
    assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(tmp_path) == list(range(6, 15))


def test_two_windows_that_meet_have_every_message_once(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path
) -> None:
    """Messages come to their chunks late, so both windows read some of the same chunks."""
    created = [START + n * SECOND for n in range(100)]
    archive.add(
        "orders",
        [
            (created[n + 4] + 3 * SECOND, [message(b"x", created=created[k]) for k in range(n, n + 5)])
            for n in range(0, 100, 5)
        ],
    )
    for start, end in ((0, 33), (33, 71), (71, 200)):
        job = player.run("load", streams=["orders"], start=at(start), end=at(end), **to_table(tmp_path))
        assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(tmp_path) == list(range(100))


def test_a_gap_is_skipped_counted_and_named_and_fails_the_job(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path
) -> None:
    archive.fill("orders", 20)
    archive.add("orders", [(START + 90 * SECOND, [message(b"after")] * 10)], hole=7)
    job = player.run("load", streams=["orders"], **to_table(tmp_path / "a"))
    assert job.state is JobState.FAILED
    assert job.skipped.count == 7
    assert "offsets 20 to 26 of" in job.skipped.named[0]
    assert offsets(tmp_path / "a") == [*range(20), *range(27, 37)]
    allowed = player.run("load", streams=["orders"], allow_skipped=True, **to_table(tmp_path / "b"))
    assert (allowed.state, allowed.skipped.count) == (JobState.SUCCEEDED, 7)


def test_a_damaged_chunk_fails_the_job_and_names_the_place(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path
) -> None:
    archive.fill("orders", 50)
    entry = archive.archive.log()[0]
    body = bytearray(archive.archive.body(entry.key))
    body[70] ^= 1
    archive.objects.delete(entry.key)
    archive.objects.put(entry.key, bytes(body))
    job = player.run("load", streams=["orders"], **to_table(tmp_path))
    assert job.state is JobState.FAILED
    assert entry.key in job.reason
    assert offsets(tmp_path) == []


def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_sink, "SPAN_BYTES", 1)


def dying(player: JobPlayer, job: Job, monkeypatch: pytest.MonkeyPatch, steps: int) -> Job:
    """Run an attempt that is killed after some spans: what it has told since the last write is gone."""
    real = table_run._TableReplay._write
    left = [steps]

    def write(self: Any, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        left[0] -= 1
        if not left[0]:
            raise WorkerDiedError

    def kind(run: JobRun) -> Any:
        monkeypatch.setattr(run, "checkpoint", lambda: JobRun.checkpoint(run))
        return kinds_of(player.tools)[job.kind](run)

    with monkeypatch.context() as patch:
        patch.setattr(table_run._TableReplay, "_write", write)
        try:
            return player.attempt(job, kind=kind)
        except WorkerDiedError:
            return player.store.get(job.id)


@pytest.mark.parametrize("with_window", [False, True])
def test_a_killed_load_goes_on_and_nothing_is_twice(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_window: bool
) -> None:
    small_spans(monkeypatch)
    archive.fill("orders", 100)
    archive.fill("orders", 100, at=START + 20 * SECOND)
    window = {"start": at(3), "end": at(16)} if with_window else {}
    job = player.create("load", streams=["orders"], **window, **to_table(tmp_path))
    for _ in range(20):
        job = dying(player, job, monkeypatch, 2)
        if job.state.has_ended:
            break
    assert job.state is JobState.SUCCEEDED, job.reason
    assert offsets(tmp_path) == (list(range(30, 100)) if with_window else list(range(200)))


def test_what_is_skipped_is_counted_once_however_often_the_worker_dies(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_spans(monkeypatch)
    for hole in (0, 3, 5, 7, 1):
        archive.add("orders", [(START, [message(b"x")] * 10)], hole=hole)
    job = player.create("load", streams=["orders"], max_attempts=50, **to_table(tmp_path))
    for steps in (1, 1, 2, 1, 3, 50):
        job = dying(player, job, monkeypatch, steps)
        if job.state.has_ended:
            break
    assert job.state is JobState.FAILED
    assert (job.skipped.count, len(job.skipped.named)) == (16, 4)


def test_a_load_that_is_paused_lets_go_and_goes_on(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_spans(monkeypatch)
    archive.fill("orders", 200)
    job = player.create("load", streams=["orders"], **to_table(tmp_path))
    looks = iter(range(1000))
    stopped = player.attempt(job, worker_stops=lambda: next(looks) > 2)
    assert stopped.state is JobState.WAITING
    assert 0 < stopped.progress.done < 200
    player.store.pause(job.id)
    player.store.resume(job.id)
    done = player.attempt(job)
    assert done.state is JobState.SUCCEEDED
    assert offsets(tmp_path) == list(range(200))


def test_follow_loads_what_comes_later_and_new_streams_too(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path
) -> None:
    archive.fill("orders-1", 30)
    job = player.create("load", streams=["orders-*"], follow=True, poll_interval="1s", **to_table(tmp_path))
    waits = player.attempt(job)
    assert (waits.state, waits.progress.lag_ms) == (JobState.WAITING, 0)
    archive.fill("orders-1", 20)
    archive.fill("orders-2", 5)
    player.store.update(job.id, _due)
    waits = player.attempt(job)
    assert waits.state is JobState.WAITING
    assert offsets(tmp_path) == sorted([*range(50), *range(5)])


def _due(job: Job) -> Job:
    return replace(job, next_at=TimestampMs(0))


def test_follow_with_an_end_ends_there(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 30)
    job = player.create("load", streams=["orders"], follow=True, end="45", **to_table(tmp_path))
    assert player.attempt(job).state is JobState.WAITING
    archive.fill("orders", 30)
    player.store.update(job.id, _due)
    assert player.attempt(job).state is JobState.SUCCEEDED
    assert offsets(tmp_path) == list(range(45))


def test_an_end_that_is_moved_counts_what_was_passed_over(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path
) -> None:
    """Offset 5 is of second 90, and is passed over while the window ends at 60: later nothing goes back for it."""
    created = [90 if n == 5 else n for n in range(60)]
    archive.add(
        "orders", [(START + n * SECOND, [message(b"x", created=START + created[n] * SECOND)]) for n in range(60)]
    )
    job = player.create("load", streams=["orders"], follow=True, end=at(60), **to_table(tmp_path))
    assert player.attempt(job).state is JobState.WAITING
    player.store.edit(job.id, {"end": at(80)})
    assert player.attempt(job).skipped.count == 0
    player.store.edit(job.id, {"end": at(100)})
    found = player.attempt(job)
    assert found.skipped.count == 1
    assert "passed over" in found.skipped.named[0]


@pytest.mark.parametrize("holds", [True, False])
def test_after_the_load_the_archive_loses_what_was_loaded(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, *, holds: bool
) -> None:
    archive.fill("orders", 200)
    incarnation = archive.stream("orders").incarnation
    if holds:
        _hold(archive, player)
    job = player.run("load", streams=["orders"], after_load="delete", **to_table(tmp_path))
    head = archive.table.head(incarnation)
    assert head is not None
    if holds:
        assert job.state is JobState.FAILED
        assert "hold" in job.reason
        assert head.first_offset == 0
    else:
        assert job.state is JobState.SUCCEEDED, job.reason
        assert head.first_offset is None or head.first_offset > 150  # the last fragment may tell publishers
    assert offsets(tmp_path) == list(range(200))


def _hold(archive: SampleArchive, player: JobPlayer) -> None:
    put_hold(
        player.tools.lifecycle(),
        archive.stream("orders").incarnation,
        first_offset=Offset(0),
        next_offset=None,
        reason="a court",
        by="ann",
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"start": "5"}, "begins at 5"),
        ({"start": at(3)}, "begins at"),
        ({"end": at(8)}, "a time of each message"),
    ],
)
def test_a_deletion_that_would_take_more_than_was_loaded_is_refused_at_the_beginning(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, fields: dict[str, str], why: str
) -> None:
    archive.fill("orders", 100)
    job = player.run("load", streams=["orders"], after_load="delete", **fields, **to_table(tmp_path))
    assert job.state is JobState.FAILED
    assert why in job.reason
    assert offsets(tmp_path) == []


def test_nothing_is_deleted_if_something_was_skipped(archive: SampleArchive, player: JobPlayer, tmp_path: Path) -> None:
    archive.fill("orders", 20)
    archive.add("orders", [(START, [message(b"after")] * 10)], hole=7)
    job = player.run("load", streams=["orders"], after_load="delete", allow_skipped=True, **to_table(tmp_path))
    assert job.state is JobState.SUCCEEDED
    head = archive.table.head(archive.stream("orders").incarnation)
    assert head is not None
    assert head.first_offset == 0


def test_more_streams_than_a_cursor_holds_are_refused(
    archive: SampleArchive, player: JobPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coldstream.worker.load_cursor.MAX_CURSOR_BYTES", 300)
    for number in range(4):
        archive.fill(f"orders-{number}", 1)
    job = player.run("load", streams=["orders*"], **to_table(tmp_path))
    assert job.state is JobState.FAILED
    assert "several jobs" in job.reason
