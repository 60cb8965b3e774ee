"""Groups: the neighbouring fragments of a log that compaction merges into one, and the entry of the merged one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from coldstream.format.checksum import combine_all_crc32
from coldstream.format.fragment import (
    FRAGMENT_HEADER_BYTES,
    FRAGMENT_INDEX_RECORD_BYTES,
    FRAGMENT_TRAILER_BYTES,
    MAX_FRAGMENT_BYTES,
)
from coldstream.format.index import INDEX_HEADER_BYTES
from coldstream.manifest.entry import Encoding, FragmentEntry, LastUserChunk
from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import STEP_BYTES, SparseIndex, SparsePoint, greatest
from coldstream.units import KIB, MIB, Offset, TimestampMs

DEFAULT_TARGET_BYTES = 512 * MIB
MIN_TARGET_BYTES = 64 * KIB
MAX_TARGET_BYTES = 1 << 32


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """Which fragments to compact, and how.

    All chunks of a fragment must be older than `older_than`. Merged fragments have at most `target_bytes` of chunks.
    With `encoding` identity, only identity fragments are merged, and stay identity. With `zstd-seekable`, both kinds
    are merged, and an identity fragment is also rewritten alone.
    """

    older_than: TimestampMs
    target_bytes: int = DEFAULT_TARGET_BYTES
    encoding: Encoding = Encoding.IDENTITY


@dataclass(frozen=True, slots=True)
class Group:
    """Entries without a gap between them that become one fragment. A single entry is rewritten in another encoding."""

    entries: tuple[FragmentEntry, ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise ValueError("a group has at least one entry")
        for before, entry in pairwise(self.entries):
            if before.next_offset != entry.first_offset:
                raise ValueError(f"{before.next_offset} and {entry.first_offset} are not neighbours")

    @property
    def first_offset(self) -> Offset:
        """First offset of the first entry."""
        return self.entries[0].first_offset

    @property
    def next_offset(self) -> Offset:
        """Next offset of the last entry."""
        return self.entries[-1].next_offset

    @property
    def chunks(self) -> int:
        """Chunks of all entries."""
        return sum(entry.chunks for entry in self.entries)

    @property
    def data_bytes(self) -> int:
        """Size of all chunks."""
        return sum(entry.data_bytes for entry in self.entries)

    @property
    def object_bytes(self) -> int:
        """Size of all objects, as they are stored."""
        return sum(entry.object_bytes for entry in self.entries)

    @property
    def identity_bytes(self) -> int:
        """Size of the merged fragment in the identity encoding."""
        return _identity_bytes(self.data_bytes, self.chunks)

    def merged(
        self,
        *,
        key: str,
        generation: int,
        object_bytes: int,
        crc32: int,
        frames: Frames | None = None,
    ) -> FragmentEntry:
        """Return the entry of the merged fragment; with `frames` its encoding is `zstd-seekable`.

        Everything but the object's properties follows from the entries. Frames must be cut at the points of `sparse`.
        """
        first, last = self.entries[0], self.entries[-1]
        return FragmentEntry(
            first_offset=first.first_offset,
            next_offset=last.next_offset,
            first_timestamp=first.first_timestamp,
            last_timestamp=last.last_timestamp,
            greatest_timestamp=max(entry.greatest_timestamp for entry in self.entries),
            epoch=last.epoch,
            chunks=self.chunks,
            records=sum(entry.records for entry in self.entries),
            messages=sum(entry.messages for entry in self.entries),
            data_bytes=self.data_bytes,
            object_bytes=object_bytes,
            key=key,
            crc32=crc32,
            sparse=self.sparse(),
            last_user_chunk=self._last_user_chunk(),
            segment_offset=first.segment_offset,
            encoding=Encoding.IDENTITY if frames is None else Encoding.ZSTD_SEEKABLE,
            frames=frames,
            generation=generation,
            erased=any(entry.erased for entry in self.entries),
            first_epoch=next((entry.first_epoch for entry in self.entries if entry.last_user_chunk is not None), None),
            data_crc32=self._data_crc32(),
            prior_offset=first.prior_offset,
            prior_timestamp=first.prior_timestamp,
        )

    def sparse(self) -> SparseIndex:
        """Join the entries' sparse indexes, without the points that are too close to the one before."""
        points: list[SparsePoint] = []
        for point in self._points():
            if not points or point.position - points[-1].position >= STEP_BYTES:
                points.append(point)
        return SparseIndex(tuple(points))

    def _data_crc32(self) -> int | None:
        return combine_all_crc32((entry.data_crc32, entry.data_bytes) for entry in self.entries)

    def _points(self) -> Iterator[SparsePoint]:
        ordinal = shift = 0
        latest: TimestampMs | None = None
        for entry in self.entries:
            for point in entry.sparse.points:
                # An entry's first point has its own timestamp there, as no chunk of the entry comes before it.
                before = greatest((latest, point.greatest_before if point.ordinal else None))
                yield point._replace(
                    ordinal=point.ordinal + ordinal,
                    position=point.position + shift,
                    greatest_before=point.timestamp if before is None else before,
                )
            ordinal += entry.chunks
            shift += entry.data_bytes
            latest = greatest((latest, entry.greatest_timestamp))

    def _last_user_chunk(self) -> LastUserChunk | None:
        shift = self.data_bytes
        for entry in reversed(self.entries):
            shift -= entry.data_bytes
            if entry.last_user_chunk is not None:
                return replace(entry.last_user_chunk, position=entry.last_user_chunk.position + shift)
        return None


def plan_groups(log: Iterable[FragmentEntry], policy: CompactionPolicy) -> Iterator[Group]:
    """Cut a log, in order, into the groups that are worth compacting. Finish an interrupted compaction first.

    An entry that already has the target encoding is left alone if it has at least half the target size, or would be
    more than two thirds of its group. So whenever bytes are merged again, their fragment grows by at least half, and a
    log that grows a little between runs has each byte rewritten a few times, not on every run. Entries in a colder
    storage class are left alone.
    """
    members: list[FragmentEntry] = []
    data_bytes = chunks = 0
    for entry in log:
        if not _is_candidate(entry, policy):
            continue
        data_bytes += entry.data_bytes
        chunks += entry.chunks
        is_next = bool(members) and members[-1].next_offset == entry.first_offset
        is_small = data_bytes <= policy.target_bytes and _identity_bytes(data_bytes, chunks) <= MAX_FRAGMENT_BYTES
        if not (is_next and is_small):
            yield from _worth(members, policy)
            members = []
            data_bytes, chunks = entry.data_bytes, entry.chunks
        members.append(entry)
    yield from _worth(members, policy)


def _is_candidate(entry: FragmentEntry, policy: CompactionPolicy) -> bool:
    if entry.greatest_timestamp >= policy.older_than:
        return False
    # A colder class is paid for months whether or not the object stays, two of them cannot even be read, and the merged
    # object is written in S3's own class. So what was moved once is left where it is.
    if entry.storage_class is not None:
        return False
    if entry.encoding is not policy.encoding:
        return policy.encoding is not Encoding.IDENTITY
    return entry.data_bytes * 2 < policy.target_bytes


def _worth(entries: list[FragmentEntry], policy: CompactionPolicy) -> Iterator[Group]:
    """Yield the entries as one group or, if one of them is too large for the others, the groups before and after it."""
    encoded = [entry for entry in entries if entry.encoding is policy.encoding]
    largest = max(encoded, key=lambda entry: entry.data_bytes, default=None)
    if largest is not None and largest.data_bytes * 3 > 2 * sum(entry.data_bytes for entry in entries):
        number = entries.index(largest)
        yield from _worth(entries[:number], policy)
        yield from _worth(entries[number + 1 :], policy)
    elif entries:
        yield Group(tuple(entries))


def _identity_bytes(data_bytes: int, chunks: int) -> int:
    index_bytes = INDEX_HEADER_BYTES + chunks * FRAGMENT_INDEX_RECORD_BYTES
    return FRAGMENT_HEADER_BYTES + data_bytes + index_bytes + FRAGMENT_TRAILER_BYTES
