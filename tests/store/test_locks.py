"""The contract of what a bucket can do, and of legal holds, on every implementation."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.errors import InvalidSettingError, ObjectNotFoundError
from coldstream.store.objects import S3Objects
from coldstream.store.ports import BucketCapabilities, ObjectStore
from tests.store.wire import Wire, s3_error


def test_a_plain_bucket_can_nothing(objects: ObjectStore) -> None:
    assert objects.capabilities() == BucketCapabilities(False, False, None, ())


def test_a_bucket_with_versions_says_so(versioned: ObjectStore) -> None:
    assert versioned.capabilities() == BucketCapabilities(True, False, None, ())


def test_a_bucket_with_object_lock_says_so(locking: ObjectStore) -> None:
    assert locking.capabilities() == BucketCapabilities(True, True, None, ())


def test_a_hold_is_put_and_released(locking: ObjectStore) -> None:
    locking.put("key", b"data")
    assert not locking.legal_hold("key")
    locking.put_legal_hold("key", True)
    locking.put_legal_hold("key", True)
    assert locking.legal_hold("key")
    info = locking.info("key")
    assert info is not None
    assert info.legal_hold
    locking.put_legal_hold("key", False)
    assert not locking.legal_hold("key")


def test_a_hold_is_on_one_version(locking: ObjectStore) -> None:
    locking.put("key", b"first")
    locking.put_legal_hold("key", True)
    (first,) = locking.versions("key")
    locking.put("key", b"second")
    assert not locking.legal_hold("key")
    assert locking.legal_hold("key", first.version_id)
    locking.put_legal_hold("key", False, first.version_id)
    assert not locking.legal_hold("key", first.version_id)


def test_without_object_lock_nothing_is_held_and_nothing_can_be(objects: ObjectStore) -> None:
    objects.put("key", b"data")
    assert not objects.legal_hold("key")
    with pytest.raises(InvalidSettingError, match="Object Lock"):
        objects.put_legal_hold("key", True)


def test_what_is_not_there_cannot_be_held(locking: ObjectStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        locking.put_legal_hold("key", True)
    with pytest.raises(ObjectNotFoundError):
        locking.legal_hold("key")


def test_default_retention_and_enabled_rules_are_told(s3: Any, s3_locking: S3Objects) -> None:
    retention = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 30}}
    s3.put_object_lock_configuration(
        Bucket=s3_locking.bucket,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention},
    )
    rules = [
        {
            "ID": "old",
            "Status": "Enabled",
            "Filter": {"Prefix": "archive/"},
            "Expiration": {"Days": 400},
            "Transitions": [{"Days": 90, "StorageClass": "GLACIER_IR"}],
            "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
        },
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}},
    ]
    s3.put_bucket_lifecycle_configuration(Bucket=s3_locking.bucket, LifecycleConfiguration={"Rules": rules})
    found = s3_locking.capabilities()
    assert found.default_retention == "GOVERNANCE 30 days"
    (line,) = found.lifecycle or ()
    assert line == (
        "old, of archive/*: deletes after 400 days, deletes earlier versions after 7 days,"
        " moves to GLACIER_IR after 90 days, aborts unfinished uploads after 3 days"
    )


def test_what_nobody_may_ask_is_unknown(aws: str) -> None:
    objects = S3Objects("bucket")
    with Wire(objects._client, *[s3_error(403, "AccessDenied") for _ in range(3)]):
        assert objects.capabilities() == BucketCapabilities(None, None, None, None)


def test_a_store_that_knows_no_versions_keeps_none(aws: str) -> None:
    objects = S3Objects("bucket")
    with Wire(objects._client, *[s3_error(501, "NotImplemented") for _ in range(3)]):
        assert objects.capabilities() == BucketCapabilities(False, False, None, ())
