"""The contract of storage classes, on every implementation."""

from __future__ import annotations

import io
from typing import Any
from zlib import crc32

import pytest

from coldstream.errors import (
    ColdstreamError,
    NotRestoredError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplacedError,
)
from coldstream.store import classes
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ObjectInfo, ObjectStore, RestoreState, RestoreTier
from coldstream.units import MIB, ByteRange, TimestampMs
from tests.store.wire import Wire, answer, s3_error

DATA = bytes(range(256)) * 40


def put(objects: ObjectStore, data: bytes = DATA) -> str:
    objects.put_new("a b+", io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))
    info = objects.info("a b+")
    assert info is not None
    return info.etag


def test_a_copy_in_another_class_has_the_same_bytes(objects: ObjectStore) -> None:
    etag = put(objects)
    info = objects.copy_in_class("a b+", "a b+.1", "STANDARD_IA", if_match=etag)
    assert (info.storage_class, info.size_bytes, info.crc32) == ("STANDARD_IA", len(DATA), crc32(DATA))
    assert objects.get_range("a b+.1", ByteRange(0, 1 << 20)).data == DATA
    assert [found.storage_class for found in objects.listed("a")] == [None, "STANDARD_IA"]
    back = objects.copy_in_class("a b+.1", "a b+.2", None, if_match=info.etag)
    assert back.storage_class is None


def test_a_key_that_is_taken_keeps_its_object(objects: ObjectStore) -> None:
    etag = put(objects)
    objects.put_new("taken", io.BytesIO(b"other"), size_bytes=5, crc32=crc32(b"other"))
    with pytest.raises(ObjectExistsError):
        objects.copy_in_class("a b+", "taken", "STANDARD_IA", if_match=etag)
    assert objects.get_range("taken", ByteRange(0, 9)).data == b"other"
    assert objects.uploads("taken") == ()


def test_an_object_that_is_another_by_now_stays_in_its_class(objects: ObjectStore) -> None:
    put(objects)
    with pytest.raises(ReplacedError):
        objects.copy_in_class("a b+", "copy", "STANDARD_IA", if_match='"0123456789abcdef0123456789abcdef"')
    with pytest.raises(ObjectNotFoundError):
        objects.copy_in_class("nothing", "copy", "STANDARD_IA", if_match='"0123456789abcdef0123456789abcdef"')


def archived(objects: ObjectStore) -> ObjectInfo:
    """Put an object into an archived class, at `cold`."""
    return objects.copy_in_class("a b+", "cold", "GLACIER", if_match=put(objects))


def test_an_archived_object_has_to_be_restored_before_it_is_read(objects: ObjectStore) -> None:
    archived(objects)
    assert objects.restore_state("cold") == RestoreState("GLACIER")
    assert not objects.restore_state("cold").is_readable
    with pytest.raises(NotRestoredError) as caught:
        objects.get_range("cold", ByteRange(0, 10))
    assert caught.value.key == "cold"
    assert not caught.value.retryable


def test_an_archived_object_has_to_be_restored_before_it_is_copied(objects: ObjectStore) -> None:
    info = archived(objects)
    with pytest.raises(NotRestoredError):
        objects.copy_in_class("cold", "warm", None, if_match=info.etag)


def test_a_restored_object_is_read(objects: ObjectStore) -> None:
    archived(objects)
    objects.restore("cold", 2, RestoreTier.BULK)
    if isinstance(objects, MemoryObjects):
        assert objects.restore_state("cold") == RestoreState("GLACIER", is_running=True)
        objects.restore("cold", 2, RestoreTier.BULK)
        objects.finish_restores()
    else:
        objects.restore_state("cold")  # moto's restore is done as soon as somebody asks
    state = objects.restore_state("cold")
    assert state.is_readable
    assert state.expires_at is not None
    assert objects.get_range("cold", ByteRange(0, 10)).data == DATA[:10]
    objects.restore("cold", 9, RestoreTier.STANDARD)


def test_what_is_not_archived_is_not_restored(objects: ObjectStore) -> None:
    put(objects)
    assert objects.restore_state("a b+") == RestoreState(None)
    with pytest.raises(ColdstreamError, match="not archived"):
        objects.restore("a b+", 2, RestoreTier.BULK)
    with pytest.raises(ObjectNotFoundError):
        objects.restore("nothing", 2, RestoreTier.BULK)
    with pytest.raises(ObjectNotFoundError):
        objects.restore_state("nothing")


def test_what_is_large_is_copied_by_several_parts(s3_objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "COPY_PART_BYTES", 5 * MIB)
    data = DATA * (7 * MIB // len(DATA))
    etag = put(s3_objects, data)
    with Wire(s3_objects._client) as seen:
        info = s3_objects.copy_in_class("a b+", "copy", "GLACIER_IR", if_match=etag)
    assert [request.method for request in seen.sent] == ["HEAD", "POST", "PUT", "PUT", "POST", "HEAD"]
    assert seen.sent[4].headers["If-None-Match"] == b"*"
    assert (info.storage_class, info.size_bytes) == ("GLACIER_IR", len(data))
    assert s3_objects.get_range("copy", ByteRange(0, 1 << 30)).data == data
    assert s3_objects.uploads("copy") == ()


@pytest.fixture(scope="module")
def unreached(aws: str) -> S3Objects:
    """A bucket for tests that never reach it."""
    return S3Objects("bucket")


HEAD: dict[str, Any] = {
    "Content_Length": "0",
    "ETag": '"e"',
    "Last_Modified": "Tue, 14 Jul 2026 03:33:20 GMT",
    "x_amz_storage_class": "DEEP_ARCHIVE",
}


def test_a_restore_that_runs_already_is_fine(unreached: S3Objects) -> None:
    with Wire(unreached._client, s3_error(409, "RestoreAlreadyInProgress")):
        unreached.restore("key", 1, RestoreTier.STANDARD)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ('ongoing-request="true"', RestoreState("DEEP_ARCHIVE", is_running=True)),
        (
            'ongoing-request="false", expiry-date="Tue, 14 Jul 2026 03:33:20 GMT"',
            RestoreState("DEEP_ARCHIVE", expires_at=TimestampMs(1_784_000_000_000)),
        ),
    ],
)
def test_a_head_says_how_a_restore_stands(unreached: S3Objects, said: str, state: RestoreState) -> None:
    with Wire(unreached._client, answer(200, **HEAD, x_amz_restore=said)):
        assert unreached.restore_state("key") == state
    assert state.is_readable is (state.expires_at is not None)
