"""Multipart uploads that nobody finishes."""

from __future__ import annotations

from zlib import crc32

from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.units import Offset
from tests.garbage.littered import REPORT, LitteredArchive
from tests.store.samples import ORDERS

LIFE = ORDERS.incarnation


def test_uploads_that_nobody_finishes_are_aborted_after_a_week() -> None:
    archive = LitteredArchive()
    archive.archive(0, 10)
    key = archive.keys.staged(LIFE, Offset(10), Offset(20))
    upload_id = archive.objects.create_upload(key)
    archive.objects.put_part(key, upload_id, 1, b"some", crc32=crc32(b"some"))
    archive.pass_days(6)
    young = archive.objects.create_upload(key)
    archive.pass_days(2)
    report = archive.collect(REPORT)
    assert set(archive.objects.uploads(key)) == {upload_id, young}
    found = {one.state: one for one in report.findings if one.kind is ObjectKind.UNFINISHED}
    assert (found[ObjectState.GARBAGE].objects, found[ObjectState.GARBAGE].size_bytes) == (1, 4)
    assert found[ObjectState.YOUNG].objects == 1
    archive.collect()
    assert archive.objects.uploads(key) == (young,)
