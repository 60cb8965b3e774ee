"""The deletion of objects for good: on a bucket that keeps versions, every version of a key, and its delete markers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from coldstream.flow.window import map_ahead
from coldstream.store.ports import BucketCapabilities, DeleteFailure, DeleteReport, ObjectStore
from coldstream.units import TimestampMs

LISTINGS_AT_ONCE = 16

MAX_KEYS = 1000
"""Keys that one request deletes."""

MAX_TOLD = 100
"""Objects of each kind that a report names; it counts all of them."""


def delete_for_good(
    objects: ObjectStore, bucket: BucketCapabilities, keys: Sequence[str], *, signed_at: TimestampMs
) -> DeleteReport:
    """Delete the objects at up to MAX_KEYS keys; each key is then in one of the report's two lists, once.

    `signed_at` is the time of the claim for which they go.

    What Object Lock protects is left, and reported with the store's reason. If nobody may ask whether the bucket keeps
    versions, it is treated as one that does: bytes that are to go for good must not stay without a word.

    Cost: one POST; on a bucket with versions, also a listing for each key, and a POST for each thousand versions.
    Raises UnavailableError, when some may be deleted already, and AccessDeniedError if versions may not be listed.
    """
    if bucket.versioned is False:
        return objects.delete_many(keys, signed_at=signed_at)
    keys = tuple(dict.fromkeys(keys))  # two uploads that gave up one object have each left a tombstone for it
    with ThreadPoolExecutor(LISTINGS_AT_ONCE, thread_name_prefix="versions") as pool:
        listed = map_ahead(pool, lambda key: _versions(objects, key), keys, max_calls=LISTINGS_AT_ONCE)
        versions = [version for found in listed for version in found]
    failed: dict[str, str] = {}
    deleted: Counter[str] = Counter()
    for at in range(0, len(versions), MAX_KEYS):
        report = objects.delete_versions(versions[at : at + MAX_KEYS], signed_at=signed_at)
        deleted.update(report.deleted)
        failed |= dict(report.failed)
    wanted = Counter(key for key, _ in versions)
    # A key counts as deleted only if the answers name each of its versions. One without any is gone already.
    kept = {key: failed.get(key, "the store did not say that all versions are deleted") for key in keys}
    gone = tuple(key for key in keys if key not in failed and deleted[key] == wanted[key])
    return DeleteReport(gone, tuple(DeleteFailure(key, kept[key]) for key in keys if key not in set(gone)))


def _versions(objects: ObjectStore, key: str) -> list[tuple[str, str]]:
    # Listed by prefix, so longer keys show, too.
    return [(key, version.version_id) for version in objects.versions(key) if version.key == key]
