"""What passes through the port to the bucket: the store's answers about objects, parts and versions.

A storage class is S3's name for it, such as `GLACIER`; None is the class STANDARD, which S3 leaves out of its answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from coldstream.units import TimestampMs

ARCHIVED_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Classes whose objects nobody can read before they are restored."""


SIGNATURE_MS = 15 * 60 * 1000
"""How long after the time that a request is signed with S3 carries it out."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The answer to a HEAD. `crc32` is that of the whole object, None if the store keeps none.

    `version_id` is None in a bucket that keeps no versions. `legal_hold` is false where nobody may ask for it, too.
    `note` is the metadata that the object was written with (manifest.note), None if it was written without.
    """

    size_bytes: int
    etag: str
    crc32: int | None
    last_modified: TimestampMs
    storage_class: str | None = None
    version_id: str | None = None
    legal_hold: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RangeRead:
    """Bytes of an object, and the size and ETag of the whole of it."""

    data: bytes
    object_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part of a multipart upload; parts count from 1. `crc32` is None if the store keeps none."""

    number: int
    size_bytes: int
    crc32: int | None
    etag: str


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted. `initiated_at` is S3's own time, in whole seconds."""

    key: str
    upload_id: str
    initiated_at: TimestampMs


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing shows it. `last_modified` is S3's own time, in whole seconds."""

    key: str
    size_bytes: int
    etag: str
    last_modified: TimestampMs
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """A version of an object, or a delete marker, which has no bytes and no ETag.

    `version_id` is the text `null` for what was written while the bucket kept no versions.
    """

    key: str
    version_id: str
    is_latest: bool
    is_delete_marker: bool
    size_bytes: int
    etag: str
    last_modified: TimestampMs


class DeleteFailure(NamedTuple):
    """A key, or a version of it, that the store did not delete, with the store's reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """What a store says of a deletion: every key that was asked for is in exactly one of the two, in that order.

    Of versions, a key is named once for each version. `deleted` holds what the answer says was deleted, or was not
    there any more; a key that the answer leaves out is in `failed`.
    """

    deleted: tuple[str, ...] = ()
    failed: tuple[DeleteFailure, ...] = ()

    def __add__(self, other: DeleteReport) -> DeleteReport:
        """Return both as one report."""
        return DeleteReport(self.deleted + other.deleted, self.failed + other.failed)


@dataclass(frozen=True, slots=True)
class BucketCapabilities:
    """What a bucket does with what is deleted. None is unknown: the caller may not ask.

    `versioned` is true also if versions are suspended, because those that exist stay. `default_retention` describes
    the Object Lock that new objects get, such as `GOVERNANCE 30 days`, None also if they get none. `lifecycle` has a
    line for each enabled rule.
    """

    versioned: bool | None = False
    object_lock: bool | None = False
    default_retention: str | None = None
    lifecycle: tuple[str, ...] | None = ()


class RestoreTier(StrEnum):
    """How fast S3 restores an object of an archived class: in minutes, in hours, or in up to two days."""

    EXPEDITED = "Expedited"
    STANDARD = "Standard"
    BULK = "Bulk"


@dataclass(frozen=True, slots=True)
class RestoreState:
    """Whether an object can be read, or when.

    `is_running` is true while S3 restores it; `expires_at` is when the restored copy goes, None if there is none.
    """

    storage_class: str | None
    is_running: bool = False
    expires_at: TimestampMs | None = None

    @property
    def is_readable(self) -> bool:
        """Tell whether the object can be read now."""
        return self.storage_class not in ARCHIVED_CLASSES or self.expires_at is not None
