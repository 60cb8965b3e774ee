"""A bucket with versions, as template.yaml makes it: the store behaves as on any, and what it deletes is kept."""

from __future__ import annotations

import io
from typing import Any
from zlib import crc32

import pytest

from coldstream.errors import NotFoundError, ObjectExistsError
from coldstream.store.objects import S3Objects
from coldstream.units import ByteRange

KEY = "0a1b2c3d___orders_1/data/00000000000000000000.fragment"
DATA = b"bytes of a fragment"


@pytest.fixture
def versioned(s3: Any, s3_objects: S3Objects) -> S3Objects:
    s3.put_bucket_versioning(Bucket=s3_objects.bucket, VersioningConfiguration={"Status": "Enabled"})
    put(s3_objects, DATA)
    return s3_objects


def put(objects: S3Objects, data: bytes) -> None:
    objects.put_new(KEY, io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))


def test_a_deleted_object_is_not_there_and_its_key_is_free(versioned: S3Objects) -> None:
    versioned.delete(KEY)
    assert versioned.info(KEY) is None
    assert list(versioned.keys("")) == []
    with pytest.raises(NotFoundError):
        versioned.get_range(KEY, ByteRange(0, 1))
    put(versioned, DATA)


def test_nothing_is_put_over_another(versioned: S3Objects) -> None:
    with pytest.raises(ObjectExistsError):
        put(versioned, DATA)


def test_what_was_deleted_is_brought_back_by_deleting_the_mark_over_it(versioned: S3Objects, s3: Any) -> None:
    versioned.delete(KEY)
    (mark,) = s3.list_object_versions(Bucket=versioned.bucket, Prefix=KEY)["DeleteMarkers"]
    assert mark["IsLatest"]
    s3.delete_object(Bucket=versioned.bucket, Key=KEY, VersionId=mark["VersionId"])
    assert versioned.get_range(KEY, ByteRange(0, len(DATA))).data == DATA
