"""What of a bucket makes deletions cost more, or do less, than they seem to, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.garbage.report import NoncurrentVersions
from coldstream.store.ports import BucketCapabilities, ObjectStore
from coldstream.store.prices import storage_usd

ABORT_RULE = "AbortIncompleteMultipartUpload"
NONCURRENT_RULE = "NoncurrentVersionExpiration"


def bucket_notes(found: BucketCapabilities) -> tuple[str, ...]:
    """Say what an operator should know before deleting from this bucket."""
    return tuple(_notes(found))


def _notes(found: BucketCapabilities) -> Iterator[str]:
    lifecycle = found.lifecycle
    if None in (found.versioned, found.object_lock, lifecycle):
        yield "the settings of the bucket cannot all be read with these permissions; what follows is incomplete"
    if found.versioned:
        has_rule = lifecycle is not None and any(NONCURRENT_RULE in rule for rule in lifecycle)
        until = (
            "a lifecycle rule removes it"
            if has_rule
            else f"somebody removes it: no rule has {NONCURRENT_RULE}, so every deleted byte is paid for, for ever"
        )
        yield f"the bucket keeps versions: what is deleted stays as a noncurrent one, and costs the same, until {until}"
    if found.object_lock:
        yield "the bucket has Object Lock: a deletion hides an object, and its version stays as long as it is locked"
    if found.default_retention is not None:
        yield f"each new object is locked for {found.default_retention}: its bytes are paid for until then at least"
    if lifecycle is not None and not any(ABORT_RULE in rule for rule in lifecycle):
        yield f"no lifecycle rule has {ABORT_RULE}: parts of unfinished uploads are paid for until somebody aborts them"


def noncurrent_versions(objects: ObjectStore, prefix: str) -> NoncurrentVersions:
    """Add up the noncurrent versions under a prefix. Cost: one listing a thousand versions, current ones included."""
    versions = size_bytes = markers = 0
    for version in objects.versions(prefix):
        if version.is_delete_marker:
            markers += 1
        elif not version.is_latest:
            versions += 1
            size_bytes += version.size_bytes
    # A listing of versions tells no class: most are of fragments that were deleted before they could move to another.
    return NoncurrentVersions(versions, size_bytes, storage_usd(size_bytes), markers)
