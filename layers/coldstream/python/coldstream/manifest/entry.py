"""The items of one stream in the manifest: fragment entries, gaps, losses, quarantines, the head, the journal.

One partition of the table is one incarnation. Its fragment entries in the order of their offsets, with the head after
the last, are the stream's *log*. docs/formats.md lists the items; docs/decisions.md tells why the sort key is the next
offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import StreamId
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs


class Encoding(StrEnum):
    """The encoding of a fragment in its object."""

    IDENTITY = "identity"
    ZSTD_SEEKABLE = "zstd-seekable"


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


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a stream as a whole. Every change of the manifest raises `revision` by one, in its transaction.

    `next_offset` is the tail: the offset after the last archived one. `epoch` is that of the last archived chunk, None
    if an earlier release archived it. Offsets and timestamps are None while nothing is archived. The totals count what
    is archived; those of fragments and objects count all entries, even if they overlap. `quarantined` counts segments,
    `quarantined_again` further copies of them, and `losses` announced losses, even if their offsets were archived after
    all. A reader knows by these three counts whether it has read everything that is missing. `compacting` is the next
    offset of the merged entry of an unfinished compaction, while entries that it replaces are still there.
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
    """An object that no entry names any more, to be deleted from `due_at` on.

    The entry that named it held the offsets `first_offset` up to `next_offset`.
    """

    key: str
    due_at: TimestampMs
    first_offset: Offset
    next_offset: Offset
    object_bytes: int


class JournalKind(StrEnum):
    """The kind of a change to the manifest."""

    FRAGMENT_COMMITTED = "Fragment Committed"
    FRAGMENTS_COMPACTED = "Fragments Compacted"
    SEGMENT_QUARANTINED = "Segment Quarantined"
    SEGMENT_LOST = "Segment Lost"


@dataclass(frozen=True, slots=True)
class JournalEvent:
    """One change of the manifest. `revision` is the head's revision after it, which orders the events of a stream.

    `key` is the key of the fragment or the quarantined segment. `detail` is the reason of a quarantine or a loss, or a
    summary of a compaction.
    """

    revision: int
    kind: JournalKind
    at: TimestampMs
    first_offset: Offset
    next_offset: Offset
    key: str | None = None
    detail: str | None = None
