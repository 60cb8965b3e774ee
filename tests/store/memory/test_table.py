"""What is the doubles' own: the count of requests."""

from __future__ import annotations

import io
from zlib import crc32

from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.store.samples import ORDERS, commit, entry

LIFE = ORDERS.incarnation


def test_requests_of_a_table_are_counted_by_call() -> None:
    table = MemoryTable()
    commit(table, entry(0, 10))
    table.requests.clear()
    table.head(LIFE)
    table.gap(LIFE, Offset(0))
    assert table.requests == {"GetItem": 2}
    table.requests.clear()
    table.log_from_offset(LIFE, Offset(0), 1)
    table.log_from_timestamp(LIFE, TimestampMs(0), 1)
    table.log_before(LIFE, Offset(0), 1)
    table.gaps(LIFE, 1)
    list(table.journal(LIFE))
    table.incarnation_of("/", "orders")
    table.streams(None, 1)
    assert table.requests == {"Query": 7}
    table.requests.clear()
    commit(table, entry(10, 20))
    assert table.requests["TransactWriteItems"] == 1


def test_requests_of_objects_are_counted_by_call() -> None:
    objects = MemoryObjects()
    objects.put_new("key", io.BytesIO(b"data"), size_bytes=4, crc32=crc32(b"data"))
    etag = objects.get_range("key", ByteRange(0, 1)).etag
    objects.info("key")
    objects.copy("key", "copy", if_match=etag)
    objects.delete("key")
    url = objects.presign_get("a b", ByteRange(0, 10), expires_s=60)
    assert url == "memory://memory/a%20b?range=bytes=0-9&expires=60"
    upload_id = objects.create_upload("parts")
    part = objects.put_part("parts", upload_id, 1, b"data", crc32=crc32(b"data"))
    assert objects.uploads("parts") == (upload_id,)
    assert objects.parts("parts", upload_id) == (part,)
    objects.complete_upload("parts", upload_id, [part], crc32=crc32(b"data"))
    objects.abort_upload("parts", upload_id)
    assert objects.requests == dict.fromkeys(
        (
            "PutObject",
            "GetObject",
            "HeadObject",
            "CopyObject",
            "DeleteObject",
            "CreateMultipartUpload",
            "UploadPart",
            "ListMultipartUploads",
            "ListParts",
            "CompleteMultipartUpload",
            "AbortMultipartUpload",
        ),
        1,
    )


def test_what_a_reader_holds_does_not_change_under_it() -> None:
    table = MemoryTable()
    commit(table, entry(0, 10))
    events = table.journal(LIFE)
    page = table.log_from_offset(LIFE, Offset(0), 10)
    next(events)
    commit(table, entry(10, 20))
    assert list(events) == []
    assert len(page.entries) == 1
