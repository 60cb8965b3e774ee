"""The contract of `ports.ObjectStore`, on every implementation.

Where an emulated S3 differs, tests/support/differences.py says so.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from zlib import crc32

import pytest

from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    BadLengthError,
    ColdstreamError,
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplacedError,
)
from coldstream.store.object_values import SIGNATURE_MS
from coldstream.store.ports import ObjectStore, UploadedPart
from coldstream.units import MIB, ByteRange, TimestampMs

KEY = "prefix/0a1b2c3d___orders_1763700000000000000/data/00000000000000000000.fragment"
DATA = bytes(range(256)) * 40


def put(objects: ObjectStore, key: str = KEY, data: bytes = DATA) -> None:
    objects.put_new(key, io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))


def etag_of(objects: ObjectStore, key: str = KEY) -> str:
    info = objects.info(key)
    assert info is not None
    return info.etag


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, len(DATA)), (100, 356), (len(DATA) - 1, len(DATA))])
def test_a_range_is_half_open(objects: ObjectStore, start: int, end: int) -> None:
    put(objects)
    read = objects.get_range(KEY, ByteRange(start, end))
    assert read.data == DATA[start:end]
    assert read.object_bytes == len(DATA)
    assert read.etag == etag_of(objects)


def test_a_range_ends_where_the_object_does(objects: ObjectStore) -> None:
    put(objects)
    read = objects.get_range(KEY, ByteRange(len(DATA) - 7, len(DATA) + 1000))
    assert read.data == DATA[-7:]
    assert read.object_bytes == len(DATA)


def test_a_range_past_the_end_is_no_bytes(objects: ObjectStore) -> None:
    put(objects)
    read = objects.get_range(KEY, ByteRange(len(DATA), len(DATA) + 1))
    assert (read.data, read.object_bytes, read.etag) == (b"", len(DATA), etag_of(objects))


def test_an_object_of_no_bytes_is_read_as_such(objects: ObjectStore) -> None:
    put(objects, data=b"")
    assert objects.get_range(KEY, ByteRange(0, 100)).data == b""
    assert objects.get_range(KEY, ByteRange(0, 100), if_match=etag_of(objects)).object_bytes == 0
    with pytest.raises(ConflictError):
        objects.get_range(KEY, ByteRange(0, 100), if_match='"another"')


def test_a_range_of_nothing_is_not_found(objects: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        objects.get_range(KEY, ByteRange(0, 1))
    assert caught.value.key == KEY


def test_a_range_of_another_object_than_expected_is_a_conflict(objects: ObjectStore) -> None:
    put(objects)
    with pytest.raises(ConflictError):
        objects.get_range(KEY, ByteRange(0, 1), if_match='"0123456789abcdef0123456789abcdef"')
    assert objects.get_range(KEY, ByteRange(0, 1), if_match=etag_of(objects)).data == DATA[:1]


@pytest.mark.parametrize(("start", "end"), [(0, len(DATA)), (100, 356), (len(DATA) - 7, len(DATA) + 1000)])
def test_a_stream_is_a_range_piece_by_piece(objects: ObjectStore, start: int, end: int) -> None:
    put(objects)
    stream = objects.open_range(KEY, ByteRange(start, end), if_match=etag_of(objects))
    pieces = list(iter(lambda: stream.read(300), b""))
    assert b"".join(pieces) == DATA[start:end]
    assert {len(piece) for piece in pieces[:-1]} <= {300}
    assert (stream.object_bytes, stream.etag) == (len(DATA), etag_of(objects))


def test_a_stream_past_the_end_is_no_bytes(objects: ObjectStore) -> None:
    put(objects, data=b"")
    stream = objects.open_range(KEY, ByteRange(0, 100))
    assert (stream.read(9), stream.object_bytes, stream.etag) == (b"", 0, etag_of(objects))


def test_a_stream_of_nothing_or_of_another_object_is_refused(objects: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        objects.open_range(KEY, ByteRange(0, 1))
    put(objects)
    with pytest.raises(ReplacedError):
        objects.open_range(KEY, ByteRange(0, 1), if_match='"0123456789abcdef0123456789abcdef"')


def test_a_small_object_is_read_whole(objects: ObjectStore) -> None:
    put(objects)
    assert objects.get_whole(KEY, len(DATA)) == DATA
    with pytest.raises(BadLengthError) as caught:
        objects.get_whole(KEY, len(DATA) - 1)
    assert caught.value.source == KEY
    with pytest.raises(ObjectNotFoundError):
        objects.get_whole(f"{KEY}-of-nothing", 1)
    objects.put(KEY, b"")
    assert objects.get_whole(KEY, 1) == b""


def test_a_stream_that_is_closed_early_leaves_the_store_usable(objects: ObjectStore) -> None:
    put(objects)
    stream = objects.open_range(KEY, ByteRange(0, len(DATA)))
    stream.read(10)
    stream.close()
    assert objects.get_range(KEY, ByteRange(0, 10)).data == DATA[:10]


def test_a_taken_key_keeps_its_bytes(objects: ObjectStore) -> None:
    put(objects)
    with pytest.raises(ObjectExistsError) as caught:
        put(objects, data=b"other bytes")
    assert caught.value.key == KEY
    with pytest.raises(ObjectExistsError):
        put(objects)
    assert objects.get_range(KEY, ByteRange(0, 1 << 20)).data == DATA


def test_a_body_is_written_whole_wherever_it_stands(objects: ObjectStore) -> None:
    body = io.BytesIO(DATA)
    body.seek(1000)
    objects.put_new(KEY, body, size_bytes=len(DATA), crc32=crc32(DATA))
    assert objects.get_range(KEY, ByteRange(0, 1 << 20)).data == DATA


def test_bytes_of_another_checksum_are_refused(objects: ObjectStore) -> None:
    with pytest.raises(BadCrcError):
        objects.put_new(KEY, io.BytesIO(DATA), size_bytes=len(DATA), crc32=crc32(DATA) ^ 1)
    assert objects.info(KEY) is None


@pytest.mark.parametrize("size_bytes", [len(DATA) - 1, len(DATA) + 1])
def test_a_body_of_another_size_is_not_sent(objects: ObjectStore, size_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"{len(DATA)} bytes, not {size_bytes}"):
        objects.put_new(KEY, io.BytesIO(DATA), size_bytes=size_bytes, crc32=crc32(DATA))
    assert objects.info(KEY) is None


def test_info_says_size_and_checksum(objects: ObjectStore) -> None:
    put(objects)
    info = objects.info(KEY)
    assert info is not None
    assert (info.size_bytes, info.crc32) == (len(DATA), crc32(DATA))


def test_a_checksum_keeps_its_leading_zeros(objects: ObjectStore) -> None:
    data = next(text for n in range(10_000) if crc32(text := b"%d" % n) < 1 << 20)
    put(objects, data=data)
    info = objects.info(KEY)
    assert info is not None
    assert info.crc32 == crc32(data)


def test_info_of_nothing_is_none(objects: ObjectStore) -> None:
    assert objects.info(KEY) is None


@pytest.mark.parametrize(
    "key", ["a b+c%2F?d&e=f#g", "ünïcode/名前", "quarantine/x/00000000000000000000-abc.segment.json"]
)
def test_keys_are_taken_as_they_are(objects: ObjectStore, key: str) -> None:
    put(objects, key)
    objects.copy(key, key + ".copy", if_match=etag_of(objects, key))
    assert objects.get_range(key + ".copy", ByteRange(0, 10)).data == DATA[:10]
    objects.delete(key)
    assert objects.info(key) is None


def test_a_copy_has_the_bytes_and_leaves_the_source(objects: ObjectStore) -> None:
    put(objects)
    objects.copy(KEY, "copy", if_match=etag_of(objects))
    assert objects.get_range("copy", ByteRange(0, 1 << 20)).data == DATA
    assert objects.info(KEY) is not None


def test_a_copy_of_another_object_than_expected_is_a_conflict(objects: ObjectStore) -> None:
    put(objects)
    with pytest.raises(ConflictError):
        objects.copy(KEY, "copy", if_match='"0123456789abcdef0123456789abcdef"')
    assert objects.info("copy") is None


def test_a_copy_of_nothing_is_not_found(objects: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        objects.copy(KEY, "copy", if_match='"0123456789abcdef0123456789abcdef"')


def test_deleting_twice_is_as_good_as_once(objects: ObjectStore) -> None:
    put(objects)
    objects.delete(KEY)
    objects.delete(KEY)
    assert objects.info(KEY) is None
    put(objects, data=b"free again")


def test_a_deletion_for_a_claim_of_a_while_ago_is_carried_out(objects: ObjectStore) -> None:
    put(objects)
    report = objects.delete_many([KEY], signed_at=TimestampMs(objects.clock() - SIGNATURE_MS + 60_000))
    assert (report.deleted, objects.info(KEY)) == ((KEY,), None)


@pytest.mark.parametrize(
    "delete",
    [
        pytest.param(lambda objects, at: objects.delete(KEY, signed_at=at), id="one"),
        pytest.param(lambda objects, at: objects.delete_many([KEY], signed_at=at), id="many"),
    ],
)
def test_a_deletion_for_a_claim_that_is_over_is_refused(
    objects: ObjectStore, delete: Callable[[ObjectStore, TimestampMs], object]
) -> None:
    put(objects)
    with pytest.raises(AccessDeniedError):
        delete(objects, TimestampMs(objects.clock() - SIGNATURE_MS - 60_000))
    assert objects.info(KEY) is not None


def test_an_object_that_is_not_the_one_expected_is_not_deleted(objects: ObjectStore) -> None:
    put(objects)
    with pytest.raises(ConflictError):
        objects.delete(KEY, if_match='"0123456789abcdef0123456789abcdef"')
    objects.delete(KEY, if_match=etag_of(objects))
    assert objects.info(KEY) is None
    objects.delete(KEY, if_match='"0123456789abcdef0123456789abcdef"')


LARGE = bytes(5 * MIB)
"""The least that S3 takes for a part, unless it is the last."""

HALVES = LARGE, DATA
WHOLE = LARGE + DATA


def put_parts(objects: ObjectStore, *parts: bytes, key: str = KEY) -> tuple[str, list[UploadedPart]]:
    upload_id = objects.create_upload(key)
    return upload_id, [
        objects.put_part(key, upload_id, number, data, crc32=crc32(data)) for number, data in enumerate(parts, 1)
    ]


def test_the_parts_of_an_upload_become_an_object(objects: ObjectStore) -> None:
    upload_id, parts = put_parts(objects, *HALVES)
    assert objects.info(KEY) is None
    objects.complete_upload(KEY, upload_id, parts, crc32=crc32(WHOLE))
    info = objects.info(KEY)
    assert info is not None
    assert (info.size_bytes, info.crc32) == (len(WHOLE), crc32(WHOLE))
    assert objects.get_range(KEY, ByteRange(0, len(WHOLE))).data == WHOLE
    assert objects.uploads(KEY) == ()


def test_an_upload_to_a_taken_key_is_not_completed_and_stays(objects: ObjectStore) -> None:
    upload_id, parts = put_parts(objects, b"other bytes")
    put(objects)
    with pytest.raises(ObjectExistsError) as caught:
        objects.complete_upload(KEY, upload_id, parts, crc32=crc32(b"other bytes"))
    assert caught.value.key == KEY
    assert objects.get_range(KEY, ByteRange(0, 1 << 20)).data == DATA
    assert objects.uploads(KEY) == (upload_id,)


def test_of_two_uploads_to_a_key_one_is_completed(objects: ObjectStore) -> None:
    first, second = put_parts(objects, *HALVES), put_parts(objects, b"other bytes")
    objects.complete_upload(KEY, *first, crc32=crc32(WHOLE))
    with pytest.raises(ObjectExistsError):
        objects.complete_upload(KEY, *second, crc32=crc32(b"other bytes"))
    assert objects.get_range(KEY, ByteRange(0, len(WHOLE))).data == WHOLE


def test_parts_that_are_not_named_are_dropped(objects: ObjectStore) -> None:
    upload_id, parts = put_parts(objects, DATA, b"left over")
    objects.complete_upload(KEY, upload_id, parts[:1], crc32=crc32(DATA))
    assert objects.get_range(KEY, ByteRange(0, 1 << 20)).data == DATA


def test_what_an_upload_has_is_listed_by_number(objects: ObjectStore) -> None:
    upload_id = objects.create_upload(KEY)
    assert objects.parts(KEY, upload_id) == ()
    last = objects.put_part(KEY, upload_id, 7, HALVES[1], crc32=crc32(HALVES[1]))
    first = objects.put_part(KEY, upload_id, 1, HALVES[0], crc32=crc32(HALVES[0]))
    listed = objects.parts(KEY, upload_id)
    assert list(listed) == [first, last]


def test_parts_that_were_listed_can_be_completed(objects: ObjectStore) -> None:
    upload_id, _ = put_parts(objects, *HALVES)
    objects.complete_upload(KEY, upload_id, objects.parts(KEY, upload_id), crc32=crc32(WHOLE))
    assert objects.get_range(KEY, ByteRange(0, len(WHOLE))).data == WHOLE


def test_a_part_is_written_over_and_the_one_before_is_none_any_more(objects: ObjectStore) -> None:
    upload_id, parts = put_parts(objects, LARGE, b"second")
    third = objects.put_part(KEY, upload_id, 2, b"third", crc32=crc32(b"third"))
    with pytest.raises(ConflictError) as caught:
        objects.complete_upload(KEY, upload_id, parts, crc32=crc32(LARGE + b"second"))
    assert caught.value.retryable
    objects.complete_upload(KEY, upload_id, [parts[0], third], crc32=crc32(LARGE + b"third"))
    assert objects.get_range(KEY, ByteRange(len(LARGE), len(LARGE) + 100)).data == b"third"


def test_uploads_are_those_to_exactly_the_key_oldest_first(objects: ObjectStore) -> None:
    first, _ = put_parts(objects, DATA)
    put_parts(objects, DATA, key=KEY + ".json")
    put_parts(objects, DATA, key=KEY[:-1])
    second = objects.create_upload(KEY)
    assert objects.uploads(KEY) == (first, second)
    assert objects.uploads(KEY[:-2]) == ()


def test_keys_and_uploads_are_listed_by_their_prefix(objects: ObjectStore) -> None:
    for key in ("some/2", "some/1", "same/1"):
        objects.put_new(key, io.BytesIO(DATA), size_bytes=len(DATA), crc32=crc32(DATA))
    uploads = {(key, objects.create_upload(key)) for key in ("some/3", "some/4")}
    objects.create_upload("same/3")
    assert list(objects.keys("some/")) == ["some/1", "some/2"]
    assert set(objects.uploads_under("some/")) == uploads


def test_unfinished_uploads_are_listed_with_exactly_their_keys(objects: ObjectStore) -> None:
    names = ("some/a b", "some/a%20b", "some/a+b")
    ids = {name: objects.create_upload(name) for name in names}
    objects.create_upload("other/c")
    found = {upload.key: upload.upload_id for upload in objects.unfinished_uploads("some/")}
    assert found == ids


def test_an_unfinished_upload_has_the_time_at_which_it_began(objects: ObjectStore) -> None:
    objects.create_upload("some/key")
    (upload,) = objects.unfinished_uploads("some/")
    assert abs(upload.initiated_at - objects.clock()) < 60_000


def test_an_aborted_upload_is_gone(objects: ObjectStore) -> None:
    upload_id, _ = put_parts(objects, DATA)
    objects.abort_upload(KEY, upload_id)
    objects.abort_upload(KEY, upload_id)
    assert objects.uploads(KEY) == ()
    with pytest.raises(ConflictError):
        objects.parts(KEY, upload_id)


def test_an_upload_that_is_gone_takes_no_part_and_is_not_completed(objects: ObjectStore) -> None:
    upload_id, parts = put_parts(objects, DATA)
    objects.abort_upload(KEY, upload_id)
    with pytest.raises(ConflictError):
        objects.put_part(KEY, upload_id, 1, DATA, crc32=crc32(DATA))
    with pytest.raises(ConflictError):
        objects.complete_upload(KEY, upload_id, parts, crc32=crc32(DATA))
    assert objects.info(KEY) is None


def test_parts_and_wholes_of_another_checksum_are_refused(objects: ObjectStore) -> None:
    upload_id, parts = put_parts(objects, *HALVES)
    with pytest.raises(BadCrcError):
        objects.put_part(KEY, upload_id, 2, b"x", crc32=crc32(b"y"))
    with pytest.raises(BadCrcError):
        objects.complete_upload(KEY, upload_id, parts, crc32=crc32(WHOLE) ^ 1)
    assert objects.info(KEY) is None
    assert objects.uploads(KEY) == (upload_id,)


def test_parts_can_be_ranges_of_other_objects(objects: ObjectStore) -> None:
    put(objects, "source", b"head" + LARGE + b"tail")
    etag = etag_of(objects, "source")
    upload_id = objects.create_upload(KEY)
    parts = [
        objects.copy_part("source", ByteRange(4, 4 + len(LARGE)), KEY, upload_id, 1, if_match=etag),
        objects.put_part(KEY, upload_id, 2, WHOLE, crc32=crc32(WHOLE)),
        objects.copy_part("source", ByteRange(2, 4), KEY, upload_id, 3, if_match=etag),
    ]
    assert [(part.number, part.size_bytes) for part in parts] == [(1, len(LARGE)), (2, len(WHOLE)), (3, 2)]
    assert parts[0].crc32 in {None, crc32(LARGE)}  # whoever merges objects relies on it
    whole = LARGE + WHOLE + b"ad"
    objects.complete_upload(KEY, upload_id, parts, crc32=crc32(whole))
    assert objects.get_range(KEY, ByteRange(0, 1 << 30)).data == whole


def test_a_whole_of_copied_parts_of_another_checksum_is_refused(objects: ObjectStore) -> None:
    put(objects, "source")
    upload_id = objects.create_upload(KEY)
    part = objects.copy_part("source", ByteRange(0, 9), KEY, upload_id, 1, if_match=etag_of(objects, "source"))
    with pytest.raises(BadCrcError):
        objects.complete_upload(KEY, upload_id, [part], crc32=crc32(DATA[:9]) ^ 1)
    assert objects.info(KEY) is None


def test_a_part_copied_of_nothing_is_not_found(objects: ObjectStore) -> None:
    upload_id = objects.create_upload(KEY)
    with pytest.raises(ObjectNotFoundError) as caught:
        objects.copy_part("source", ByteRange(0, 1), KEY, upload_id, 1, if_match='"0123456789abcdef0123456789abcdef"')
    assert caught.value.key == "source"


def test_a_part_copied_of_another_object_than_expected_is_a_conflict(objects: ObjectStore) -> None:
    put(objects, "source")
    upload_id = objects.create_upload(KEY)
    with pytest.raises(ConflictError):
        objects.copy_part("source", ByteRange(0, 1), KEY, upload_id, 1, if_match='"0123456789abcdef0123456789abcdef"')


def test_a_part_copied_past_the_end_is_refused(objects: ObjectStore) -> None:
    put(objects, "source")
    upload_id = objects.create_upload(KEY)
    with pytest.raises(ColdstreamError):
        objects.copy_part("source", ByteRange(1, len(DATA) + 1), KEY, upload_id, 1, if_match=etag_of(objects, "source"))


def test_an_upload_that_is_gone_takes_no_copied_part(objects: ObjectStore) -> None:
    put(objects, "source")
    upload_id = objects.create_upload(KEY)
    objects.abort_upload(KEY, upload_id)
    with pytest.raises(ConflictError):
        objects.copy_part("source", ByteRange(0, 1), KEY, upload_id, 1, if_match=etag_of(objects, "source"))
