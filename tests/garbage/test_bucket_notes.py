"""What a bucket does with what is deleted, told with its cost."""

from __future__ import annotations

from coldstream.garbage.options import GarbageOptions
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import BucketCapabilities
from tests.garbage.littered import LitteredArchive


def test_versions_and_locks_are_told_with_what_they_cost() -> None:
    archive = LitteredArchive(objects=MemoryObjects(object_lock=True))
    archive.archive(0, 10)
    archive.fragment(10)
    archive.pass_days(2)
    report = archive.collect(GarbageOptions(delete=True, versions=True))
    assert report.capabilities == BucketCapabilities(versioned=True, object_lock=True)
    assert any("keeps versions" in note for note in report.notes)
    assert any("Object Lock" in note for note in report.notes)
    assert any("AbortIncompleteMultipartUpload" in note for note in report.notes)
    assert report.noncurrent is not None
    assert (report.noncurrent.versions, report.noncurrent.size_bytes, report.noncurrent.delete_markers) == (1, 100, 1)
    assert report.noncurrent.usd_a_month > 0
