"""The contract of `ports.ObjectStore`, on every implementation."""

from __future__ import annotations

import io
from zlib import crc32

import pytest

from coldstream.errors import BadCrcError, ConflictError, ObjectExistsError, ObjectNotFoundError
from coldstream.store.memory import MemoryObjects
from coldstream.store.ports import ObjectStore
from coldstream.units import ByteRange

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


def test_bytes_of_another_checksum_are_refused() -> None:
    # By the double alone: moto takes any checksum. test_objects has the one that is sent, and S3's refusal.
    objects = MemoryObjects()
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


def test_a_copy_of_another_object_than_expected_is_a_conflict() -> None:
    # By the double alone: moto copies whatever the condition says. test_objects has the one that is sent.
    objects = MemoryObjects()
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


def test_an_object_that_is_not_the_one_expected_is_not_deleted(objects: ObjectStore) -> None:
    put(objects)
    with pytest.raises(ConflictError):
        objects.delete(KEY, if_match='"0123456789abcdef0123456789abcdef"')
    objects.delete(KEY, if_match=etag_of(objects))
    assert objects.info(KEY) is None
    objects.delete(KEY, if_match='"0123456789abcdef0123456789abcdef"')
