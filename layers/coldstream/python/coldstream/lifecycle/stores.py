"""The stores that the work on an archive's life needs, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.ports import BucketCapabilities, ManifestTable, ObjectStore
from coldstream.units import TimestampMs

LONGEST_UPLOAD_MS = 24 * 3600 * 1000
"""No writer is at work on one object for longer than this.

An upload function lives for 15 minutes, and a task of compaction writes one object. An unfinished multipart upload may
be older; that is no object yet.
"""


@dataclass(frozen=True, slots=True)
class LifecycleStores:
    """One archive. `now` is AWS's clock (`store.clock`), never the host's; `bucket` is what the bucket can do.

    `grace_ms` is the time from the removal of an entry to the deletion of its object: longer than any URL that was
    signed before the removal is valid (`store.grace`).
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    control: ControlObjects
    bucket: BucketCapabilities
    now: Callable[[], TimestampMs]
    grace_ms: int

    @classmethod
    def open(
        cls,
        table: ManifestTable,
        objects: ObjectStore,
        keys: Keys,
        *,
        grace_ms: int,
    ) -> Self:
        """Ask the bucket what it can do. Cost: three GETs."""
        control, bucket = ControlObjects(objects, keys), objects.capabilities()
        return cls(table, objects, keys, control, bucket, objects.clock, grace_ms)

    def due_at(self, removed_at: TimestampMs) -> TimestampMs:
        """Return when the object of an entry that was removed at a time may be deleted."""
        return TimestampMs(removed_at + self.grace_ms)
