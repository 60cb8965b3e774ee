"""Whole runs, in memory."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from coldstream.compact.options import CompactOptions
from coldstream.compact.report import run_summary
from coldstream.compact.run import GIVE_UP_AFTER, Compactor
from coldstream.compact.task import CompactionTask, GroupFailure, write_task
from coldstream.compact.write import MergedFragment
from coldstream.errors import BadCrcError, ObjectNotFoundError, UnavailableError
from coldstream.manifest.entry import Encoding
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import TimestampMs
from tests.support.archive import NOW, STREAM, ChunkArchive, steady
from tests.support.compacting import LONG_AFTER, assert_right, log_of, options_of, run

INCARNATION = STREAM.incarnation
GROUP = 4


def archive_of(groups: int) -> ChunkArchive:
    """An archive of groups of fragments that gaps keep apart."""
    archive = ChunkArchive()
    for number in range(groups):
        for fragment in range(GROUP):
            archive.add(number * 100 + fragment * 2, steady(2, number))
    return archive


def run_with(
    archive: ChunkArchive,
    write: Callable[[CompactionTask], MergedFragment | GroupFailure] | None = None,
    at_once: int = 3,
) -> dict[str, object]:
    compactor = Compactor(
        archive.table, archive.objects, write or writer(archive.objects), at_once=at_once, now=lambda: NOW
    )
    return run_summary(compactor.run([STREAM], options_of()), seconds=1.5)


def writer(objects: ObjectStore) -> Callable[[CompactionTask], MergedFragment | GroupFailure]:
    return lambda task: write_task(objects, Keys(), task)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_every_group_becomes_one_and_the_report_adds_up(encoding: Encoding) -> None:
    archive = archive_of(5)
    before = sum(entry.object_bytes for entry in log_of(archive.table, INCARNATION))
    report = run(archive, options_of(encoding))
    log = log_of(archive.table, INCARNATION)
    assert len(log) == 5
    assert {entry.encoding for entry in log} == {encoding}
    assert (report.fragments, report.fragments_after, report.superseded) == (20, 5, 0)
    assert (report.object_bytes, report.object_bytes_after) == (before, sum(entry.object_bytes for entry in log))
    assert_right(archive, archive.chunks)


def test_what_is_done_is_not_done_again() -> None:
    archive = archive_of(3)
    run(archive, options_of())
    archive.table.requests.clear()
    report = run(archive, options_of())
    assert (report.fragments, report.failures) == (0, [])
    assert "TransactWriteItems" not in archive.table.requests


def test_several_are_written_at_once_and_committed_one_after_the_other() -> None:
    archive = archive_of(6)
    together = threading.Barrier(3, timeout=20)
    write = writer(archive.objects)

    def meet(task: CompactionTask) -> MergedFragment | GroupFailure:
        together.wait()
        return write(task)

    assert run_with(archive, meet)["fragments_after"] == 6
    assert_right(archive, archive.chunks)


def test_a_corrupt_fragment_is_told_by_key_and_position_and_the_other_groups_go_on() -> None:
    archive = archive_of(4)
    entry = log_of(archive.table, INCARNATION)[GROUP + 1]
    data = bytearray(archive.objects.objects[entry.key])
    data[60] ^= 1
    archive.objects.objects[entry.key] = bytes(data)
    report = run(archive, options_of(Encoding.ZSTD_SEEKABLE))
    (failure,) = report.failures
    assert issubclass(failure.kind, BadCrcError)
    assert (failure.key, failure.position) == (entry.key, 8)
    assert (failure.first_offset, failure.next_offset) == (100, 108)
    assert (report.fragments, report.fragments_after) == (12, 3)
    assert len(log_of(archive.table, INCARNATION)) == 3 + GROUP
    assert entry.key in str(failure)
    (told,) = json.loads(json.dumps(run_summary([report], seconds=0)))["streams"][0]["failures"]
    assert (told["key"], told["position"], told["error"]) == (entry.key, 8, "BadCrcError")


def test_a_fragment_whose_object_is_gone_fails_its_group_alone() -> None:
    archive = archive_of(3)
    key = log_of(archive.table, INCARNATION)[0].key
    archive.objects.delete(key)
    report = run(archive, options_of())
    assert [(failure.kind, failure.key) for failure in report.failures] == [(ObjectNotFoundError, key)]
    assert report.fragments_after == 2


def test_a_service_that_does_not_answer_ends_the_run() -> None:
    archive = archive_of(20)
    asked: list[CompactionTask] = []

    def unavailable(task: CompactionTask) -> MergedFragment | GroupFailure:
        asked.append(task)
        return GroupFailure.of(UnavailableError("down"), task.group)

    assert run_with(archive, unavailable, at_once=1)["failed"] == GIVE_UP_AFTER
    assert len(asked) <= GIVE_UP_AFTER + 1


def test_a_service_that_answers_again_does_not() -> None:
    archive = archive_of(12)
    write = writer(archive.objects)
    asked: list[CompactionTask] = []

    def shaky(task: CompactionTask) -> MergedFragment | GroupFailure:
        asked.append(task)
        if len(asked) % 2:
            return GroupFailure.of(UnavailableError("slow down"), task.group)
        return write(task)

    assert run_with(archive, shaky, at_once=1)["fragments_after"] == 6


def test_an_interrupted_run_stops_what_is_under_way_and_deletes_what_it_did_not_commit() -> None:
    archive = archive_of(6)
    stopped = threading.Event()
    write = writer(archive.objects)

    def interrupt(_: CompactionTask) -> None:
        raise KeyboardInterrupt

    def slow(task: CompactionTask) -> MergedFragment | GroupFailure:
        if task.group.first_offset > 100:
            stopped.wait(20)
        return write(task)

    compactor = Compactor(
        archive.table, archive.objects, slow, at_once=4, stop=stopped.set, on_settled=interrupt, now=lambda: NOW
    )
    with pytest.raises(KeyboardInterrupt):
        compactor.run([STREAM], options_of())
    assert stopped.is_set()
    log = log_of(archive.table, INCARNATION)
    tombstones = archive.table.tombstones(INCARNATION, LONG_AFTER, 100)
    assert archive.objects.objects.keys() == {one.key for one in (*log, *tombstones)}
    assert_right(archive, archive.chunks)


def test_an_interrupt_as_soon_as_a_task_has_begun_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_of(2)
    stopped = threading.Event()

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments: object) -> Any:
            super().submit(*arguments)
            raise KeyboardInterrupt

    def slow(task: CompactionTask) -> MergedFragment | GroupFailure:
        assert stopped.wait(20)
        return GroupFailure.of(UnavailableError("stopped"))

    monkeypatch.setattr("coldstream.compact.run.ThreadPoolExecutor", Interrupted)
    compactor = Compactor(archive.table, archive.objects, slow, at_once=1, stop=stopped.set, now=lambda: NOW)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compactor.run([STREAM], options_of())
    assert stopped.is_set()
    assert time.monotonic() - began < 15


def test_an_error_that_nobody_foresaw_ends_the_run_and_leaves_nothing_behind() -> None:
    archive = archive_of(6)
    write = writer(archive.objects)

    def broken(task: CompactionTask) -> MergedFragment | GroupFailure:
        if task.group.first_offset == 300:
            raise ZeroDivisionError
        return write(task)

    with pytest.raises(ZeroDivisionError):
        run_with(archive, broken)
    assert_right(archive, archive.chunks)


def test_streams_are_compacted_each_by_itself_and_one_that_cannot_be_planned_fails_alone() -> None:
    archive = archive_of(2)
    other = StreamId("/", "other", Incarnation("__other_1"))

    head = archive.table.head

    def shaky_head(incarnation: Incarnation) -> object:
        if incarnation == other.incarnation:
            raise UnavailableError("down")
        return head(incarnation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive.table, "head", shaky_head)
        compactor = Compactor(archive.table, archive.objects, writer(archive.objects), at_once=1, now=lambda: NOW)
        failed, fine = compactor.run([other, STREAM], options_of())
    assert [failure.kind for failure in failed.failures] == [UnavailableError]
    assert failed.failures[0].first_offset is None
    assert fine.fragments_after == 2


def test_what_is_young_is_left() -> None:
    archive = ChunkArchive()
    for number in range(4):
        archive.add(number, steady(1, NOW - 2000 + number * 500))
    compactor = Compactor(archive.table, archive.objects, writer(archive.objects), at_once=1, now=lambda: NOW)
    options = CompactOptions(older_than_ms=1000, target_bytes=1 << 20, encoding=Encoding.IDENTITY, level=3)
    (report,) = compactor.run([STREAM], options)
    assert report.fragments == 2


def test_a_run_sweeps_what_is_due_by_then() -> None:
    archive = archive_of(2)
    run(archive, options_of())
    report = run(archive, options_of(), now=LONG_AFTER)
    assert report.swept.objects == 2 * GROUP
    assert archive.objects.objects.keys() == {entry.key for entry in log_of(archive.table, INCARNATION)}


def test_the_summary_is_json_with_totals() -> None:
    archive = archive_of(2)
    found = json.loads(json.dumps(run_with(archive)))
    (stream,) = found["streams"]
    assert (found["fragments"], found["fragments_after"], found["failed"], found["seconds"]) == (8, 2, 0, 1.5)
    assert (stream["vhost"], stream["name"], stream["incarnation"]) == ("/", "orders", INCARNATION)
    assert stream["swept_objects"] == 0


def test_tasks_and_what_becomes_of_them_travel_between_processes() -> None:
    archive = archive_of(1)
    tasks: list[CompactionTask] = []

    def keep(task: CompactionTask) -> MergedFragment | GroupFailure:
        tasks.append(task)
        return GroupFailure.of(BadCrcError("key", 8, "CRC", expected=1, found=2), task.group)

    run_with(archive, keep)
    assert pickle.loads(pickle.dumps(tasks)) == tasks
    written = write_task(archive.objects, Keys(), tasks[0])
    failure = keep(tasks[0])
    assert pickle.loads(pickle.dumps((written, failure))) == (written, failure)


def test_time_is_asked_for() -> None:
    archive = archive_of(1)
    run(archive, options_of(), now=TimestampMs(NOW + 5))
    assert {event.at for event in archive.table.journal(INCARNATION)} >= {TimestampMs(NOW + 5)}
