"""What the manifest holds of one stream: fragment entries, gaps, what is known to be missing, the head, the journal.

One partition of the table is one incarnation. Its fragment entries, in the order of their offsets, with the head behind
the last, are the stream's *log* (docs/formats.md has the items, docs/decisions.md why the sort key is the next offset).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs


class Encoding(StrEnum):
    """How the bytes of a fragment stand in its object."""

    IDENTITY = "identity"
    ZSTD_SEEKABLE = "zstd-seekable"


@dataclass(frozen=True, slots=True)
class LastUserChunk:
    """Where the last user chunk of a fragment is: the place that the offset spec `last` attaches at."""

    chunk_id: ChunkId
    position: int
    timestamp: TimestampMs


@dataclass(frozen=True, slots=True)
class FragmentEntry:
    """One fragment: what is in its object, and where that is.

    Offsets are half-open: `first_offset` up to, not including, `next_offset`. `records` counts offsets, `messages`
    those in user chunks. `data_bytes` are the chunks alone; that, and the positions in `sparse` and `last_user_chunk`,
    are those of the identity encoding, whatever the encoding is. `object_bytes`, `crc32` and `frames` are of the whole
    object as it is stored; `frames` is there exactly where the encoding is `zstd-seekable`.

    `epoch` is that of the last chunk, `first_epoch` that of the first user chunk, None where there is none and in
    entries of earlier releases. `data_crc32` is the CRC-32 of the chunks alone, in the identity encoding, None in
    entries of earlier releases and in what was merged of them.

    `prior_offset` and `prior_timestamp` are the next offset of the entry before this one and the greatest timestamp of
    all entries before it, None for the first of the stream; the commit keeps them. Before an entry that a compaction
    made there may still be some of those that it replaces, which lie wholly within it; its links are those of the first
    of them.
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
        """Tell whether this entry can come right after `before`: its link knows of nothing else in between.

        Where it cannot, what was read shows half of a change.
        """
        if self.first_offset <= before.next_offset:
            return True
        return self.prior_offset is not None and self.prior_offset <= before.next_offset


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `first_offset` up to `next_offset` that no entry covers, between two that do.

    `reason` says why where that is known of all of them (`manifest.missing`); None means "not archived yet, or lost:
    nobody has said".
    """

    first_offset: Offset
    next_offset: Offset
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets `first_offset` up to `next_offset` that, as the agent said, will never be archived, and why."""

    first_offset: Offset
    next_offset: Offset
    reason: str
    at: TimestampMs


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A segment of offsets `first_offset` up to `next_offset` that failed verification, and why.

    The copy that failed last is the object at `key`; `etag` is what its staged copy had; `copies` counts those that
    failed. Another copy of the segment may be archived by now.
    """

    first_offset: Offset
    next_offset: Offset
    reason: str
    at: TimestampMs
    key: str
    etag: str
    copies: int = 1


Missing = Loss | Quarantine
"""What is known of why offsets are missing."""


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a stream as a whole. Every change of the manifest raises `revision` by one, in its transaction.

    `next_offset` is the tail: the offset after the last archived one, `epoch` that of the chunk before it, None while
    that was archived by an earlier release. Offsets and timestamps are None while nothing is
    archived. The totals are over what is archived, those of fragments and objects over all entries, also where they
    overlap; `quarantined` counts segments, `quarantined_again` further copies of them, `losses` what was said to be
    lost, archived after all or not. Who reads what is missing has read all of it where these counts say so.
    `compacting` is the next offset of an entry that a compaction made, while some that it replaces are still there.
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


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The object at `key`, which is to be deleted from `due_at` on: no entry names it any more.

    The one that did held the offsets `first_offset` up to `next_offset`.
    """

    key: str
    due_at: TimestampMs
    first_offset: Offset
    next_offset: Offset
    object_bytes: int


class JournalKind(StrEnum):
    """What happened to the manifest."""

    FRAGMENT_COMMITTED = "Fragment Committed"
    FRAGMENTS_COMPACTED = "Fragments Compacted"
    SEGMENT_QUARANTINED = "Segment Quarantined"
    SEGMENT_LOST = "Segment Lost"


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """One change of the manifest. `revision` is the head's after it, and so orders the events of a stream.

    `key` is that of the fragment or of the quarantined segment, `detail` the reason of a quarantine or a loss, or what
    was compacted.
    """

    revision: int
    kind: JournalKind
    at: TimestampMs
    first_offset: Offset
    next_offset: Offset
    key: str | None = None
    detail: str | None = None
