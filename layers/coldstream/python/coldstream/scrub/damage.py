"""Kinds of damage, and one finding of the scrub."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from coldstream.manifest.stream import StreamId
from coldstream.units import Offset


class Severity(IntEnum):
    """How bad a kind of damage is; the greater, the worse."""

    WARNING = 1
    """Nothing that a reader sees: bookkeeping that no longer fits, or work that was left lying."""
    ERROR = 2
    """Lookups or later writes may go wrong."""
    CRITICAL = 3
    """Archived messages cannot be read."""


class Damage(StrEnum):
    """The kinds of damage. The value is the dimension `Damage` of the metric `DamagesFound`."""

    # An item that cannot be read at all.
    ITEM = "ItemMalformed"
    # An object, as its entry names it.
    OBJECT_MISSING = "ObjectMissing"
    OBJECT_SIZE = "ObjectSizeDiffers"
    OBJECT_CHECKSUM = "StoredChecksumDiffers"
    STORAGE_CLASS = "StorageClassDiffers"
    # Its bytes.
    TRAILER = "TrailerDamaged"
    INDEX = "IndexDamaged"
    SEEK_TABLE = "SeekTableDamaged"
    CHUNKS = "ChunksDamaged"
    BYTES = "BytesDiffer"
    # Its entry, if the object is sound.
    SPARSE_INDEX = "SparseIndexDiffers"
    FRAMES = "FramesDiffer"
    ENTRY = "EntryDiffers"
    # The log.
    LINK = "LinkBroken"
    RUNNING_TIMESTAMP = "RunningTimestampWrong"
    OVERLAP = "EntriesOverlap"
    HEAD_BOUNDS = "HeadBoundsDiffer"
    TIME_INDEX = "TimeIndexDiffers"
    BELOW_FLOOR = "EntryBelowFloor"
    # Gaps.
    GAP_MISSING = "GapNotRecorded"
    GAP_EXTRA = "GapWithoutHole"
    GAP_REASON = "GapReasonDiffers"
    # Sums.
    TOTALS = "TotalsDiffer"
    COUNTS = "CountsDiffer"
    # What is removed, or kept apart.
    TOMBSTONE_LIVE = "TombstoneOfLiveObject"
    TOMBSTONE_OVERDUE = "TombstoneOverdue"
    FENCE = "FenceTooLow"
    QUARANTINE_OBJECT = "QuarantinedObjectMissing"
    QUARANTINE_NOTE = "QuarantineNoteDiffers"
    # The journal.
    JOURNAL = "JournalIncomplete"
    REPLAY = "JournalReplayDiffers"
    # The registry, and what the bucket alone must tell.
    NO_HEAD = "RegisteredWithoutHead"
    UNREGISTERED = "NotRegistered"
    CLUSTER_NOTE = "ClusterNoteDiffers"
    STREAM_NOTE = "StreamNoteDiffers"
    FLOOR_NOTE = "FloorNoteDiffers"
    DIRECT_NOTE = "DirectNoteDiffers"
    DIRECT_NAME = "DirectNameMissing"
    HOLD_NOTE = "HoldNoteMissing"
    LOSS_NOTE = "LossNoteMissing"
    ERASURE_NOTE = "ErasureNoteMissing"
    # Sharded streams.
    SHARD_NOTE = "ShardNoteDiffers"
    SHARD_MAP = "ShardMapBehind"


@dataclass(frozen=True, slots=True)
class Finding:
    """One damage: of the offsets `first_offset` up to `next_offset`, None if it is of the stream as a whole.

    `key` is that of the object concerned, None if none is. `detail` says in words what was expected and what was found.
    """

    damage: Damage
    stream: StreamId
    first_offset: Offset | None
    next_offset: Offset | None
    key: str | None
    detail: str

    def __str__(self) -> str:
        where = "" if self.first_offset is None else f", offsets {self.first_offset} to {self.next_offset}"
        return f"{self.damage}: {self.stream}{where}: {self.detail}"
