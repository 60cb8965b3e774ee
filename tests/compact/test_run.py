"""Whole runs, in memory."""

from __future__ import annotations

import json
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from coldstream.compact.options import CompactOptions
from coldstream.compact.report import CompactionReport, run_summary
from coldstream.compact.run import GIVE_UP_AFTER, Compactor
from coldstream.compact.task import CompactionTask, GroupFailure, write_task
from coldstream.compact.write import MergedFragment
from coldstream.errors import BadCrcError, ObjectNotFoundError, UnavailableError
from coldstream.manifest.entry import Encoding, Head
from coldstream.manifest.fence import plan_fence
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


def test_a_run_that_comes_to_its_end_stops_nobody() -> None:
    archive = archive_of(2)
    stops: list[None] = []
    compactor = Compactor(
        archive.table,
        archive.objects,
        writer(archive.objects),
        at_once=1,
        stop=lambda: stops.append(None),
        now=lambda: NOW,
    )
    (report,) = compactor.run([STREAM], options_of())
    assert (report.fragments_after, stops) == (2, [])


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


def test_a_table_that_does_not_answer_at_commits_ends_the_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> None:
        raise UnavailableError("down")

    monkeypatch.setattr("coldstream.compact.run.commit", down)
    archive = archive_of(GIVE_UP_AFTER + 4)
    assert run_with(archive, at_once=1)["failed"] == GIVE_UP_AFTER


def test_a_stream_that_goes_while_its_groups_are_planned_ends_nothing() -> None:
    archive = archive_of(1)
    compactor = Compactor(archive.table, archive.objects, writer(archive.objects), at_once=1, now=lambda: NOW)
    reports = {STREAM: CompactionReport(STREAM)}
    tasks = compactor._plan(reports, options_of())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive.table, "head", heads_then_none(archive.table.head))
        assert [task.generation for task in tasks] == [0]
    assert reports[STREAM].failures == []


def test_a_task_gets_no_key_that_was_fenced_off_by_the_time_it_is_planned() -> None:
    archive = archive_of(2)
    compactor = Compactor(archive.table, archive.objects, writer(archive.objects), at_once=1, now=lambda: NOW)
    tasks = compactor._plan({STREAM: CompactionReport(STREAM)}, options_of())
    assert next(tasks).generation == 0
    head = archive.table.head(INCARNATION)
    assert head is not None
    archive.table.apply(plan_fence(head, 7, NOW))
    assert next(tasks).generation == 7


def heads_then_none(head: Callable[[Incarnation], Head | None]) -> Callable[[Incarnation], Head | None]:
    """Answer with the head while a plan begins, and with nothing once it asks for a group."""

    def answer(incarnation: Incarnation) -> Head | None:
        names = {frame.name for frame in traceback.extract_stack()}
        return head(incarnation) if names & {"finish", "find_groups"} else None

    return answer


def test_one_more_is_planned_than_are_written_at_once() -> None:
    all_planned = threading.Event()
    planned: list[CompactionTask] = []
    archive = archive_of(5)

    def wait(task: CompactionTask) -> MergedFragment | GroupFailure:
        assert all_planned.wait(10), "nothing more was planned while all writers were at work"
        return GroupFailure.of(UnavailableError("down"), task.group)

    compactor = Compactor(archive.table, archive.objects, wait, at_once=2, now=lambda: NOW)

    def tasks() -> Iterator[CompactionTask]:
        for task in compactor._plan({STREAM: CompactionReport(STREAM)}, options_of()):
            planned.append(task)
            if len(planned) == 3:
                all_planned.set()
            yield task

    assert len(list(compactor._write_all(tasks()))) == 5


def test_what_was_written_is_discarded_though_another_task_failed_or_never_began() -> None:
    archive = archive_of(1)
    compactor = Compactor(archive.table, archive.objects, writer(archive.objects), at_once=1, now=lambda: NOW)
    (task,) = compactor._plan({STREAM: CompactionReport(STREAM)}, options_of())
    written = write_task(archive.objects, Keys(), task)
    assert isinstance(written, MergedFragment)
    never, failed, done = Future[Any](), Future[Any](), Future[Any]()
    failed.set_exception(ValueError("nobody foresaw it"))
    done.set_result(written)
    compactor._abandon(dict.fromkeys((never, failed, done), task))
    assert never.cancelled()
    found = archive.table.tombstones(INCARNATION, LONG_AFTER, 100)
    assert [tombstone.key for tombstone in found] == [written.entry.key]


def test_a_failure_outside_of_a_group_names_no_offsets_and_no_place() -> None:
    failure = GroupFailure.of(UnavailableError("down"))
    assert (failure.first_offset, failure.next_offset, failure.key, failure.position) == (None, None, None, None)
    assert str(failure) == f"UnavailableError: {failure.message}"


def test_a_report_counts_bytes_that_passed_also_for_what_was_not_committed() -> None:
    archive = archive_of(1)
    compactor = Compactor(archive.table, archive.objects, writer(archive.objects), at_once=1, now=lambda: NOW)
    (task,) = compactor._plan({STREAM: CompactionReport(STREAM)}, options_of())
    entry = task.group.entries[0]
    report = CompactionReport(STREAM)
    report.add(task, MergedFragment(entry, read_bytes=1, sent_bytes=20, copied_bytes=300), is_committed=False)
    assert report == CompactionReport(STREAM, read_bytes=1, sent_bytes=20, copied_bytes=300, superseded=1)
    report.add(task, MergedFragment(entry, read_bytes=1, sent_bytes=20, copied_bytes=300), is_committed=True)
    assert (report.read_bytes, report.sent_bytes, report.copied_bytes, report.superseded) == (2, 40, 600, 1)
    assert (report.fragments, report.fragments_after) == (GROUP, 1)
    assert (report.object_bytes, report.object_bytes_after) == (task.group.object_bytes, entry.object_bytes)


def test_a_report_of_nothing_is_all_zero() -> None:
    told = run_summary([CompactionReport(STREAM)], seconds=0.0)
    assert told["dry_run"] is False
    (stream,) = cast("list[dict[str, object]]", told["streams"])
    assert [value for value in (*told.values(), *stream.values()) if isinstance(value, int) and value] == []


def test_a_run_finishes_what_an_earlier_one_began_though_nothing_else_is_to_do() -> None:
    archive = archive_of(1)
    for fragment in range(GROUP, 12):
        archive.add(fragment * 2, steady(2, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coldstream.compact.commit.finish", lambda *_: None)
        run_with(archive)
    begun = archive.table.head(INCARNATION)
    assert begun is not None
    assert begun.compacting is not None
    assert run_with(archive)["fragments_after"] == 0
    finished = archive.table.head(INCARNATION)
    assert finished is not None
    assert finished.compacting is None
    assert len(log_of(archive.table, INCARNATION)) == 1


def test_a_failure_and_what_was_not_swept_are_told_by_name() -> None:
    failure = GroupFailure.of(BadCrcError("key", 8, "CRC", expected=1, found=2))
    told = run_summary([CompactionReport(STREAM, failures=[failure])], seconds=0.0)
    (stream,) = cast("list[dict[str, object]]", told["streams"])
    assert (told["failed"], stream["not_swept"]) == (1, [])
    assert stream["failures"] == [
        {
            "error": "BadCrcError",
            "message": failure.message,
            "first_offset": None,
            "next_offset": None,
            "key": "key",
            "position": 8,
        }
    ]
