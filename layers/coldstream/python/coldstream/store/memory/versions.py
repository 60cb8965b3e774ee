"""Listings, deletions, versions, holds and storage classes of the in-memory bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32 as crc32_of

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidSettingError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from coldstream.store.memory.bucket import PAGE, UNVERSIONED, MemoryBucket, Version
from coldstream.store.object_values import (
    ARCHIVED_CLASSES,
    SIGNATURE_MS,
    BucketCapabilities,
    DeleteFailure,
    DeleteReport,
    ListedObject,
    ObjectInfo,
    ObjectVersion,
    RestoreState,
    RestoreTier,
)
from coldstream.units import TimestampMs

DAY_MS = 24 * 3600 * 1000


class MemoryVersions(MemoryBucket):
    """Implement what `ports.ObjectStore` asks of a bucket as a whole, and of versions.

    `finish_restores` ends the restores that are running, as S3 does after some hours.
    """

    def __init__(self, bucket: str = "memory", **options: Any) -> None:
        super().__init__(bucket, **options)
        self._restoring: dict[str, int] = {}  # the days asked for, by key

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        """Yield the objects under a prefix."""
        keys = sorted(key for key in tuple(self.objects) if key.startswith(prefix) and (after is None or key > after))
        self._count("ListObjectsV2", max(1, -(-len(keys) // PAGE)))
        for key in keys:
            try:
                found = self._version(key)
            except ObjectNotFoundError:
                continue  # deleted since the listing began
            size_bytes = len(found.data or b"")
            # S3 lists whole seconds.
            modified = TimestampMs(found.last_modified // 1000 * 1000)
            yield ListedObject(key, size_bytes, found.etag, modified, found.storage_class)

    def versions(self, prefix: str) -> Iterator[ObjectVersion]:
        """Yield versions and delete markers under a prefix."""
        keys = sorted(key for key in {*self.objects, *self._earlier} if key.startswith(prefix))
        found = [(key, version, number == 0) for key in keys for number, version in enumerate(self._all(key))]
        self._count("ListObjectVersions", max(1, -(-len(found) // PAGE)))
        for key, version, is_latest in found:
            size_bytes = len(version.data or b"")
            modified = TimestampMs(version.last_modified // 1000 * 1000)
            marker = version.data is None
            yield ObjectVersion(key, version.version_id, is_latest, marker, size_bytes, version.etag, modified)

    def delete_many(self, keys: Sequence[str], *, signed_at: TimestampMs | None = None) -> DeleteReport:
        """Delete the objects at these keys."""
        once = tuple(dict.fromkeys(keys))
        self._count("DeleteObjects", -(-len(once) // PAGE))
        self._check_signature(signed_at)
        for key in once:
            self._remove(key)
        return DeleteReport(once)

    def delete_versions(
        self, versions: Sequence[tuple[str, str]], *, signed_at: TimestampMs | None = None
    ) -> DeleteReport:
        """Delete versions for good."""
        once = tuple(dict.fromkeys(versions))
        self._count("DeleteObjects", -(-len(once) // PAGE))
        self._check_signature(signed_at)
        deleted, failed = [], []
        for key, version_id in once:
            if self._drop(key, version_id):
                deleted.append(key)
            else:
                failed.append(DeleteFailure(key, f"version {version_id}: AccessDenied: it is under a legal hold"))
        return DeleteReport(tuple(deleted), tuple(failed))

    def capabilities(self) -> BucketCapabilities:
        """Return what the constructor was told."""
        for call in ("GetBucketVersioning", "GetObjectLockConfiguration", "GetBucketLifecycleConfiguration"):
            self._count(call)
        return BucketCapabilities(versioned=self._versioned, object_lock=self._object_lock)

    def legal_hold(self, key: str, version_id: str | None = None) -> bool:
        """Tell whether an object is under a legal hold."""
        self._count("GetObjectLegalHold")
        return self._one(key, version_id).legal_hold

    def put_legal_hold(self, key: str, on: bool, version_id: str | None = None) -> None:  # noqa: FBT001  `on` is the value
        """Put an object under a legal hold, or release it."""
        self._count("PutObjectLegalHold")
        if not self._object_lock:
            raise InvalidSettingError("bucket", f"{self.bucket} has no Object Lock")
        with self._lock:
            found = self._one(key, version_id)
            held = replace(found, legal_hold=on)
            if key in self.objects and found is self._version(key):
                self._latest[key] = held
            else:
                earlier = self._earlier[key]
                earlier[earlier.index(found)] = held

    def copy_in_class(
        self, source_key: str, target_key: str, storage_class: str | None, *, if_match: str
    ) -> ObjectInfo:
        """Copy an object to a key that has none."""
        self._read("HeadObject", source_key, None, bytes_too=False)
        with self._lock:
            found = self._read("CopyObject", source_key, if_match)
            if target_key in self.objects:
                raise ObjectExistsError(target_key)
            self._write(target_key, found.data or b"", storage_class=storage_class, note=found.note)
        return info_of(self._read("HeadObject", target_key, None, bytes_too=False))

    def restore(self, key: str, days: int, tier: RestoreTier) -> None:
        """Begin a restore, which runs until `finish_restores`; one that is done is kept for longer."""
        found = self._read("RestoreObject", key, None, bytes_too=False)
        if found.storage_class not in ARCHIVED_CLASSES:
            raise ColdstreamError(f"restore of {key}: InvalidObjectState: its class is not archived")
        if found.storage_class == "DEEP_ARCHIVE" and tier is RestoreTier.EXPEDITED:
            raise ColdstreamError(f"restore of {key}: {tier} is not for this class")
        if found.is_readable:
            expires = TimestampMs(self.clock() + days * DAY_MS)
            self._change(key, restore=RestoreState(found.storage_class, expires_at=expires))
        else:
            self._change(key, restore=RestoreState(found.storage_class, is_running=True))
            self._restoring[key] = days

    def restore_state(self, key: str) -> RestoreState:
        """Return whether an object can be read, or is being restored."""
        found = self._read("HeadObject", key, None, bytes_too=False)
        return found.restore or RestoreState(found.storage_class)

    def finish_restores(self) -> None:
        """End all restores that are running."""
        for key, days in self._restoring.items():
            expires = TimestampMs(self.clock() + days * DAY_MS)
            self._change(key, restore=RestoreState(self._version(key).storage_class, expires_at=expires))
        self._restoring.clear()

    def _check_signature(self, signed_at: TimestampMs | None) -> None:
        if signed_at is not None and self.clock() > signed_at + SIGNATURE_MS:
            raise AccessDeniedError("DELETE: RequestTimeTooSkewed")

    def _all(self, key: str) -> list[Version]:
        """Return the versions of a key, newest first."""
        latest = [self._version(key)] if key in self.objects else []
        return latest + self._earlier.get(key, [])

    def _one(self, key: str, version_id: str | None) -> Version:
        """Return the latest version, or the one of that id. Raises ObjectNotFoundError."""
        if version_id is None:
            return self._version(key)
        for version in self._all(key):
            if version.version_id == version_id and version.data is not None:
                return version
        raise ObjectNotFoundError(key)

    def _drop(self, key: str, version_id: str) -> bool:
        """Delete a version for good, if it exists; return whether nothing protects it."""
        with self._lock:
            for version in self._all(key):
                if version.version_id != version_id:
                    continue
                if version.legal_hold:
                    return False
                if version in (earlier := self._earlier.get(key, [])):
                    earlier.remove(version)
                else:
                    del self.objects[key], self._latest[key]
                self._promote(key)
            return True

    def _promote(self, key: str) -> None:
        """Make the newest version that is left the latest; under a delete marker there is no object."""
        earlier = self._earlier.get(key, [])
        if key not in self.objects and earlier and earlier[0].data is not None:
            self._latest[key] = earlier.pop(0)
            self.objects[key] = self._latest[key].data  # type: ignore[assignment]  # the same bytes: `_version` compares


def info_of(version: Version) -> ObjectInfo:
    """Return what a HEAD says of a version."""
    data = version.data or b""
    return ObjectInfo(
        len(data),
        version.etag,
        crc32_of(data),
        TimestampMs(version.last_modified // 1000 * 1000),
        version.storage_class,
        None if version.version_id == UNVERSIONED else version.version_id,
        version.legal_hold,
        version.note,
    )
