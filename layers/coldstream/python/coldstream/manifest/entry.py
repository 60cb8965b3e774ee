"""The items of one stream in the manifest: fragment entries, gaps, losses, quarantines, holds, the head, the journal.

One partition of the table is one incarnation. Its fragment entries in the order of their offsets, with the head after
the last, are the stream's *log*. docs/formats.md lists the items; docs/decisions.md tells why the sort key is the next
offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

if TYPE_CHECKING:
    from coldstream.manifest.appender import Appender  # only direct streams have one


class Encoding(StrEnum):
    """The encoding of a fragment in its object."""

    IDENTITY = "identity"
    ZSTD_SEEKABLE = "zstd-seekable"


class StorageClass(StrEnum):
    """A storage class of S3 that an object was moved to. S3's own class STANDARD has no member: None means it."""

    STANDARD_IA = "STANDARD_IA"
    ONEZONE_IA = "ONEZONE_IA"
    INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
    GLACIER_IR = "GLACIER_IR"
    GLACIER = "GLACIER"
    DEEP_ARCHIVE = "DEEP_ARCHIVE"

    @property
    def must_be_restored(self) -> bool:
        """Whether a GET of such an object fails until a copy of it was restored."""
        return self in {StorageClass.GLACIER, StorageClass.DEEP_ARCHIVE}


@dataclass(frozen=True, slots=True)
class LastUserChunk:
    """The last user chunk of a fragment, where the offset spec `last` attaches."""

    chunk_id: ChunkId
    position: int
    timestamp: TimestampMs


@dataclass(frozen=True, slots=True)
class FragmentEntry:
    """One fragment: its content, and its object.

    Offsets are half-open: `first_offset` up to, not including, `next_offset`. `records` counts offsets, `messages` the
    offsets in user chunks. `data_bytes` is the size of the chunks alone. That, and the positions in `sparse` and
    `last_user_chunk`, refer to the identity encoding, whatever the encoding is. `object_bytes`, `crc32` and `frames`
    describe the whole object as it is stored; `frames` exists if and only if the encoding is `zstd-seekable`.

    `epoch` is the epoch of the last chunk. `first_epoch` is that of the first user chunk, None if there is none and in
    entries of earlier releases. `data_crc32` is the CRC-32 of the chunks alone, in the identity encoding, None in
    entries of earlier releases and in entries merged from those.

    `prior_offset` is the next offset of the entry before this one, `prior_timestamp` the greatest timestamp of all
    entries before it; both are None for the stream's first entry, and commits keep them up to date. Before the merged
    entry of an unfinished compaction there may still be entries that it replaces, wholly within it. It has the links of
    the first of those.

    The object of an `erased` entry has lost bytes of messages on purpose. The headers of its chunks tell the same ids,
    records, entries, epochs and timestamps as before; the sizes and CRCs of their data differ from the broker's.
    `storage_class` is the object's, None for STANDARD.
    """

    first_offset: Offset
    next_offset: Offset
    first_timestamp: TimestampMs
    last_timestamp: TimestampMs
    greatest_timestamp: TimestampMs
    epoch: Epoch
    chunks: int
    records: int
    messages: int
    data_bytes: int
    object_bytes: int
    key: str
    crc32: int
    sparse: SparseIndex
    last_user_chunk: LastUserChunk | None
    segment_offset: Offset
    encoding: Encoding = Encoding.IDENTITY
    frames: Frames | None = None
    generation: int = 0
    first_epoch: Epoch | None = None
    data_crc32: int | None = None
    prior_offset: Offset | None = None
    prior_timestamp: TimestampMs | None = None
    erased: bool = False
    storage_class: StorageClass | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset < self.next_offset:
            raise ValueError(f"an entry needs 0 <= first < next offset, got {self.first_offset}..{self.next_offset}")
        if (self.frames is None) != (self.encoding is Encoding.IDENTITY):
            raise ValueError(f"encoding {self.encoding} {'without' if self.frames is None else 'with'} frames")
        if self.frames is not None and len(self.frames.positions) != len(self.sparse.points) + 1:
            raise ValueError(f"{len(self.sparse.points)} points, {len(self.frames.positions)} positions of frames")

    @property
    def running_timestamp(self) -> TimestampMs:
        """The greatest timestamp of the stream up to the end of this fragment; it never falls along the log."""
        if self.prior_timestamp is None:
            return self.greatest_timestamp
        return max(self.prior_timestamp, self.greatest_timestamp)

    def follows(self, before: FragmentEntry) -> bool:
        """Tell whether this entry can come right after `before`: its link tells of no entry in between.

        If it cannot, the two reads show half of a change.
        """
        if self.first_offset <= before.next_offset:
            return True
        return self.prior_offset is not None and self.prior_offset <= before.next_offset


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `first_offset` up to `next_offset`, between two entries, that no entry covers.

    `reason` is known if it is known for all of the offsets (`manifest.missing`). None means that they are not archived
    yet, or lost without anybody having announced it.
    """

    first_offset: Offset
    next_offset: Offset
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets `first_offset` up to `next_offset` that will never be archived, as the agent announced, and why."""

    first_offset: Offset
    next_offset: Offset
    reason: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A segment of offsets `first_offset` up to `next_offset` that failed verification, and why.

    The object at `key` is the copy that failed last, and `etag` is that of its staged copy. `copies` counts the copies
    that failed. Another copy of the segment may be archived by now.
    """

    first_offset: Offset
    next_offset: Offset
    reason: str
    at: TimestampMs
    key: str
    etag: str
    copies: int = 1


Missing = Loss | Quarantine
"""A known cause of missing offsets."""


CLAIM_MS = 20 * 60 * 1000
"""How long objects may go for a claim. S3 refuses a request 15 minutes after the time that it is signed with, which is
that of the claim (`store.signing`); the rest is for S3 to carry out what it has accepted."""


@dataclass(frozen=True, slots=True)
class DeletionClaim:
    """Objects of the offsets `first_offset` up to `next_offset` may be deleted from now on, because no hold is on them.

    `at` is AWS's time of the change to `revision`, which made the claim. It is over when the head has it no more, or at
    `ends_at`, if whoever made it was killed.
    """

    revision: int
    first_offset: Offset
    next_offset: Offset
    at: TimestampMs

    @property
    def ends_at(self) -> TimestampMs:
        """From when on nothing is deleted for it any more."""
        return TimestampMs(self.at + CLAIM_MS)


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a stream as a whole. Every change of the manifest raises `revision` by one, in its transaction.

    `next_offset` is the tail: the offset after the last archived one. `epoch` is that of the last archived chunk, None
    if an earlier release archived it. Offsets and timestamps are None while nothing is archived. The totals count what
    is archived; those of fragments and objects count all entries, even if they overlap. `quarantined` counts segments,
    `quarantined_again` further copies of them, and `losses` announced losses, even if their offsets were archived after
    all. A reader knows by these three counts whether it has read everything that is missing. `compacting` is the next
    offset of the merged entry of an unfinished compaction, while entries that it replaces are still there.

    Offsets below `floor` are removed for good. `generation` is the least generation that the object of a new entry may
    have (`manifest.floors`). A log that lost all of its entries has no `first_offset`, and its tail is the floor.
    `floor_timestamp` is the greatest timestamp of what was removed.

    `deleted_at` is set while the stream is deleted, to be purged from `purge_at` on. `purge_began_at` is set with the
    first entry that goes, and nothing undoes the deletion from then on; `purged_at` is set when the purge is done.
    `holds` and `erasures` count those items. `claims` are the deletions of objects that may be under way.

    `journal_from` is the first revision whose event holds its change, 1 for every stream that this release began; 0
    means that an earlier release began the stream, and is never raised. `appender` is set if the stream is appended to
    without a broker. `notes_from` is the revision of the last floor
    that the bucket knew when the table was rebuilt, whose own revisions begin at 1: the next notes count on from it.
    """

    stream: StreamId
    revision: int = 0
    first_offset: Offset | None = None
    next_offset: Offset | None = None
    first_timestamp: TimestampMs | None = None
    greatest_timestamp: TimestampMs | None = None
    epoch: Epoch | None = None
    fragments: int = 0
    chunks: int = 0
    records: int = 0
    messages: int = 0
    data_bytes: int = 0
    object_bytes: int = 0
    gaps: int = 0
    quarantined: int = 0
    quarantined_again: int = 0
    losses: int = 0
    compacting: Offset | None = None
    floor: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    floor_timestamp: TimestampMs | None = None
    generation: int = 0
    deleted_at: TimestampMs | None = None
    purge_at: TimestampMs | None = None
    purge_began_at: TimestampMs | None = None
    purged_at: TimestampMs | None = None
    holds: int = 0
    erasures: int = 0
    journal_from: int = 1
    notes_from: int = 0
    claims: tuple[DeletionClaim, ...] = ()
    appender: Appender | None = None

    @property
    def note_revision(self) -> int:
        """The revision that the bucket is told: it rises through all rebuilds."""
        return self.notes_from + self.revision

    @property
    def is_deleted(self) -> bool:
        """Whether the stream is deleted: nothing is committed to it, and nobody reads it."""
        return self.deleted_at is not None

    @property
    def can_be_undeleted(self) -> bool:
        """Whether the stream is deleted and its purge has not begun: nothing of it may be given up yet."""
        return self.is_deleted and self.purge_began_at is None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An object that no entry names any more, to be deleted from `due_at` on.

    The entry that named it held the offsets `first_offset` up to `next_offset`. If messages of it were erased,
    `all_versions` of the key go for good; else a bucket that keeps versions keeps this one for as long as it is told.
    """

    key: str
    due_at: TimestampMs
    first_offset: Offset
    next_offset: Offset
    object_bytes: int
    all_versions: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold: nothing of the offsets `first_offset` up to `next_offset` is removed, erased or deleted.

    Without `next_offset` it reaches past the tail, whatever is archived later. `by` says who put it.
    """

    id: str
    first_offset: Offset
    next_offset: Offset | None
    reason: str
    by: str
    at: TimestampMs

    def __post_init__(self) -> None:
        if self.next_offset is not None and self.next_offset <= self.first_offset:
            raise ValueError(f"a hold needs first < next offset, got {self.first_offset}..{self.next_offset}")


class ErasureState(StrEnum):
    """How far an erasure is."""

    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Erasure:
    """An erasure of messages from the offsets `first_offset` up to `next_offset`, as an audit has it for good.

    `where` says which messages, `by` who asked for it, and when and why are `at` and `reason`. While it runs, all
    fragments that end at or before `reached` are done. `messages` counts those erased so far, and `digest` is over
    their offsets and the old and new objects, in hexadecimal: it proves later what was erased, and no erased byte is in
    it.
    """

    id: str
    first_offset: Offset
    next_offset: Offset
    where: str
    reason: str
    by: str
    at: TimestampMs
    messages: int
    digest: str
    state: ErasureState
    reached: Offset


class JournalKind(StrEnum):
    """The kind of a change to the manifest."""

    FRAGMENT_COMMITTED = "Fragment Committed"
    LINKS_RAISED = "Links Raised"
    FRAGMENTS_COMPACTED = "Fragments Compacted"
    COMPACTION_CONTINUED = "Compaction Continued"
    SEGMENT_QUARANTINED = "Segment Quarantined"
    QUARANTINE_RELEASED = "Quarantine Released"
    QUARANTINE_DISCARDED = "Quarantine Discarded"
    SEGMENT_LOST = "Segment Lost"
    GAPS_EXPLAINED = "Gaps Explained"
    FRAGMENTS_REMOVED = "Fragments Removed"
    RANGE_REMOVED = "Range Removed"
    DELETION_CLAIMED = "Deletion Claimed"
    DELETION_ENDED = "Deletion Ended"
    OBJECTS_DELETED = "Objects Deleted"
    STREAM_DELETED = "Stream Deleted"
    STREAM_UNDELETED = "Stream Undeleted"
    STREAM_PURGED = "Stream Purged"
    HOLD_PUT = "Hold Put"
    HOLD_RELEASED = "Hold Released"
    MESSAGES_ERASED = "Messages Erased"
    STORAGE_CLASS_CHANGED = "Storage Class Changed"
    FENCE_RAISED = "Fence Raised"
    STREAM_CREATED = "Stream Created"
    STREAM_OPENED = "Stream Opened"
    STREAM_RECOVERED = "Stream Recovered"
    STREAM_CLOSED = "Stream Closed"
    STREAM_SEALED = "Stream Sealed"
    STREAM_TRIMMED = "Stream Trimmed"
    ENTRY_REPAIRED = "Entry Repaired"
    FRAGMENTS_REBUILT = "Fragments Rebuilt"


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """One change of the manifest. `revision` is the head's revision after it, which orders the events of a stream.

    The offsets are those that the change is about, None if it is about the stream as a whole. `key` is the key of the
    fragment or the quarantined segment. `detail` is the reason of a quarantine, a loss or a removal, or a summary. `by`
    says who asked for the change, None for what coldstream does by itself.
    """

    revision: int
    kind: JournalKind
    at: TimestampMs
    first_offset: Offset | None
    next_offset: Offset | None
    key: str | None = None
    detail: str | None = None
    by: str | None = None


Row = FragmentEntry | Head | Gap | Loss | Quarantine | Hold | Erasure | Tombstone | JournalEvent
"""What one item of a stream's partition holds."""
