"""A pass over the bucket: everything is looked at once, judged by its kind, and deleted by the thousand."""

from __future__ import annotations

import pytest

from coldstream.errors import CorruptionError, UnavailableError
from coldstream.garbage.cursor import GarbageCursor
from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.tally import Tally
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import DeleteFailure, DeleteReport
from coldstream.units import Offset
from tests.garbage.littered import REPORT, START, LitteredArchive, another
from tests.store.samples import ORDERS

LIFE = ORDERS.incarnation


def test_a_report_writes_nothing_at_all() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    garbage = archive.fragment(10)
    archive.pass_days(2)
    stored, head = archive.stored, archive.table.head(LIFE)
    report = archive.collect(REPORT)
    assert (archive.stored, archive.table.head(LIFE)) == (stored, head)
    (found,) = (one for one in report.findings if one.state is ObjectState.GARBAGE)
    assert (found.objects, found.size_bytes, found.examples) == (1, 100, (garbage,))
    assert found.usd_a_month > 0
    assert report.deletions.objects == 0


def test_control_objects_and_unknown_keys_stay_for_ever() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    kept = {
        archive.put(archive.keys.stream_note(LIFE)),
        archive.put(archive.keys.policy_note("a")),
        archive.put("some/prefix/spark/compact.py"),
        archive.put("some/prefix/what is this"),
    }
    archive.pass_days(1000)
    report = archive.collect()
    assert kept <= archive.stored
    found = {one.kind: (one.state, one.objects) for one in report.findings}
    assert found[ObjectKind.UNKNOWN] == (ObjectState.UNKNOWN, 2)
    assert found[ObjectKind.STREAM_CONTROL] == found[ObjectKind.ARCHIVE_CONTROL] == (ObjectState.IN_USE, 1)


def test_what_lies_outside_of_the_prefix_is_not_even_looked_at() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    foreign = {archive.put(Keys(prefix).fragment(LIFE, Offset(500))) for prefix in ("", "some/", "some/prefixes/")}
    archive.pass_days(2)
    assert archive.collect().objects == 1
    assert foreign <= archive.stored


def test_what_the_store_does_not_delete_is_named_and_not_counted() -> None:

    archive = LitteredArchive()
    archive.archive(0, 10)
    first, second = archive.fragment(10), archive.fragment(20)

    class Refuses(MemoryObjects):
        def delete_many(self, keys: object, *, signed_at: object = None) -> DeleteReport:
            super().delete_many([first])
            return DeleteReport((first,), (DeleteFailure(second, "AccessDenied: locked"),))

    archive.objects.__class__ = Refuses
    archive.pass_days(2)
    report = archive.collect()
    assert (report.deletions.objects, report.deletions.failed) == (1, 1)
    assert report.deletions.failures == ((second, "AccessDenied: locked"),)


def test_fifty_thousand_objects_take_no_more_requests_than_their_thousands() -> None:
    archive = LitteredArchive()
    streams = [another(number) for number in range(5)]
    # Bytes that a test puts there count as written when they are first looked at: by a clock of two days ago.
    archive.objects.clock = lambda: START
    for stream in streams:
        for first in range(0, 1000, 10):
            archive.archive(first, first + 10, stream=stream)
        for first in range(1000, 10_900):
            archive.objects.objects[archive.keys.fragment(stream.incarnation, Offset(first))] = b""
    total = len(archive.stored)
    archive.pass_days(2)
    archive.objects.requests.clear()
    report = archive.collect()
    garbage = report.deletions.objects
    assert (report.objects, garbage) == (50_000, 49_500)
    assert archive.objects.requests == {
        "ListObjectsV2": -(-total // 1000),
        "DeleteObjects": -(-garbage // 1000),
        "PutObject": len(streams),  # the fence of each, for a table that is rebuilt
        "ListMultipartUploads": 1,
        "GetBucketVersioning": 1,
        "GetObjectLockConfiguration": 1,
        "GetBucketLifecycleConfiguration": 1,
    }


def test_a_run_that_is_stopped_goes_on_where_it_was_and_reports_the_whole_pass() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    for first in range(10, 60):
        archive.fragment(first)
    archive.pass_days(2)
    collector = archive.collector(GarbageCursor(archive.table, "a pass"))
    options = GarbageOptions(delete=True, max_objects=20)
    reports = [collector.run(options)]
    while not reports[-1].is_complete:
        reports.append(collector.run(options))
    assert [report.deletions.objects for report in reports] == [19, 39, 50]
    assert [report.is_complete for report in reports] == [False, False, True]
    assert reports[-1].objects == 51
    assert len(archive.stored) == 1
    assert archive.table.cursor("a pass") is None


def test_a_run_that_is_told_to_stop_deletes_what_it_has_proven_and_no_more() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    for first in range(10, 60):
        archive.fragment(first)
    archive.pass_days(2)
    looks = iter([False] * 31 + [True] * 1000)
    report = archive.collect(should_stop=lambda: next(looks))
    assert (report.objects, report.deletions.objects, report.is_complete) == (31, 30, False)
    assert report.reached == archive.keys.fragment(LIFE, Offset(39))


def test_a_run_with_other_options_does_not_go_on_with_a_report() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    garbage = archive.fragment(10)
    archive.pass_days(2)
    collector = archive.collector(GarbageCursor(archive.table, "a pass"))
    assert not collector.run(GarbageOptions(max_objects=1)).is_complete
    assert collector.run(GarbageOptions(delete=True)).objects == 2
    assert garbage not in archive.stored


def test_windows_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for window in (1, 3, 7, 1000):
        monkeypatch.setattr("coldstream.garbage.run.WINDOW", window)
        archive = LitteredArchive()
        for first in range(0, 200, 10):
            archive.archive(first, first + 10)
            archive.fragment(first, 1 + first % 3)
        archive.bury(archive.keys.fragment(LIFE, Offset(50), 1 + 50 % 3), 50)
        archive.pass_days(2)
        report = archive.collect()
        found.append((archive.stored, report.findings, report.deletions))
    assert all(one == found[0] for one in found)
    assert found[0][2].objects == 19


@pytest.mark.parametrize("data", [b"", b"[]", b"[" * 2000, b"\xff", b'{"version": 1, "options": 1, "reached": {}}'])
def test_a_damaged_cursor_is_corruption_that_names_it_or_begins_anew(data: bytes) -> None:
    cursor = GarbageCursor(LitteredArchive().table, "a pass")
    for name in ("a pass", "a pass, last pass"):
        cursor.table.put_cursor(name, data)
    if data.startswith(b"{"):
        assert cursor.load(GarbageOptions())[0] is None
    else:
        for read in (lambda: cursor.load(GarbageOptions()), cursor.reached, cursor.last_pass):
            with pytest.raises(CorruptionError, match="cursor a pass"):
                read()


def test_a_damaged_tally_is_corruption() -> None:
    cursor = GarbageCursor(LitteredArchive().table, "a pass")
    cursor.save(GarbageOptions(), "a/key", Tally())
    data = cursor.table.cursor("a pass")
    assert data is not None
    cursor.table.put_cursor("a pass", data.replace(b'"findings":[]', b'"findings":[1]'))
    with pytest.raises(CorruptionError, match="cursor a pass"):
        cursor.load(GarbageOptions())


def test_a_run_that_dies_goes_on_from_what_it_kept_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.garbage.run.WINDOW", 10)
    archive = LitteredArchive()
    archive.archive(0, 10)
    for first in range(10, 60):
        archive.fragment(first)
    archive.pass_days(2)
    cursor = GarbageCursor(archive.table, "a pass")
    options = GarbageOptions()

    def dies() -> bool:
        raise UnavailableError("no answer")

    looks = iter([False] * 35)
    with pytest.raises(UnavailableError):
        archive.collector(cursor).run(options, should_stop=lambda: next(looks, None) is None and dies())
    reached, tally = cursor.load(options)
    assert reached is not None
    assert 20 <= tally.objects < 35
    assert archive.collector(cursor).run(options).objects == 51
