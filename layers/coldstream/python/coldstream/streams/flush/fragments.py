"""Batches into fragments: what is appended to a direct stream comes into the manifest here, and nowhere else.

A fragment ends after the chunk that takes its data past the target size, and each is a segment of its own. All
fragments of one flush come into the manifest at once, by one change. So the last chunk of the log is always the last
one of somebody's flush, wherever others were cut off: there the publishers are told (`streams.publishers`).

Two openers of a stream may flush the same chunks at the same time, with other borders: both hold one history, so each
goes on after what the manifest has by then. Each offset ends in one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from coldstream.archive.draft import CutFragment, FragmentDraft
from coldstream.archive.fragment_writer import FragmentWriter
from coldstream.errors import (
    BadSequenceError,
    BelowFloorError,
    ContradictionError,
    ExpiredEpochError,
    LostRaceError,
    StaleGenerationError,
    StreamDeletedError,
    StreamNotFoundError,
)
from coldstream.format.chunk import iter_chunks
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.appending import appender_in, tail_of
from coldstream.manifest.commit import MAX_APPENDS, plan_appends
from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.stream import StreamId
from coldstream.store.races import retry_lost_races
from coldstream.streams.archive import DirectArchive
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.units import ChunkId, Epoch, Offset

MAX_PLANS = 8
"""Plans of one flush, each on what the manifest holds by then. Another opener commits its chunks at most once."""


def flush_chunks(
    archive: DirectArchive, stream: StreamId, chunks: Iterable[CachedChunk], fragment_bytes: int
) -> Offset:
    """Archive those of the chunks that the manifest does not hold; return how far it holds the stream by then.

    The chunks follow one another and reach back to the tail at least; those below it are skipped. They must be part of
    the stream for good: acknowledged, or recovered from a write-ahead log that is sealed. They are iterated again if
    others archive some of them meanwhile. A fragment ends after the chunk that takes it past `fragment_bytes`, and the
    last of MAX_APPENDS takes all the rest. Safe to repeat, wherever it was cut off, and to run beside others.

    Cost: one PUT a fragment; one GetItem and one transaction in all, the GetItem alone if there is nothing to archive.
    Memory: one chunk. Disk: one fragment.

    Raises StreamDeletedError, StreamNotFoundError for what is no direct stream, ExpiredEpochError for chunks of an
    opening that was given up, LostRaceError if others kept being first, UnavailableError. Raises CorruptionError for a
    damaged chunk or a hole between two, and ContradictionError for a chunk that straddles the tail.
    """
    writer = FragmentWriter(archive.table, archive.objects, archive.keys, stream, archive.now)
    try:
        for _ in range(MAX_PLANS):
            reached = _flush(archive, writer, chunks, fragment_bytes)
            if reached is not None:
                writer.discard_orphans()
                return reached
    except StreamDeletedError:
        writer.discard_orphans()
        raise
    raise LostRaceError(f"others kept changing what is archived of {stream}; it will be tried again")


def even_fragment_bytes(size_bytes: int, fragment_bytes: int) -> int:
    """Return the target size at which chunks of so many bytes in all become fragments of about one size.

    None is below `fragment_bytes`, and they are few enough for one flush.
    """
    fragments = min(max(1, size_bytes // fragment_bytes), MAX_APPENDS)
    return max(fragment_bytes, -(-size_bytes // fragments))


def _flush(
    archive: DirectArchive, writer: FragmentWriter, chunks: Iterable[CachedChunk], fragment_bytes: int
) -> Offset | None:
    """Make one plan: put the fragments after the tail, and commit them. None if others have changed what it is of."""
    head = _head(archive, writer.stream)
    tail, epochs, entries = tail_of(head), set[Epoch](), list[FragmentEntry]()
    for fragment in _cut(writer.stream, _after(head, chunks, epochs), fragment_bytes):
        entries.append(writer.put(fragment, head.generation))
    return _commit(archive, writer, entries, epochs, head) if entries else tail


def _after(head: Head, chunks: Iterable[CachedChunk], epochs: set[Epoch]) -> Iterator[CachedChunk]:
    """Yield the chunks past the tail, and take note of their epochs. Raises before a PUT that would be in vain."""
    tail = tail_of(head)
    for chunk in chunks:
        if chunk.next_offset <= tail:
            continue
        if not epochs:
            check_not_deleted(head)
            _check_begins(head, chunk)
        if chunk.epoch not in epochs:
            epochs.add(chunk.epoch)
            _check_epochs(head, epochs)
        yield chunk


def _commit(
    archive: DirectArchive, writer: FragmentWriter, entries: Sequence[FragmentEntry], epochs: set[Epoch], head: Head
) -> Offset | None:
    """Commit all entries at once, and return where they end; None if they must be cut, or put, anew."""
    heads = iter((head,))  # for one attempt only: on a head that lost the race, every other would lose as well

    def attempt() -> Offset | None:
        head = next(heads, None) or _head(archive, writer.stream)
        check_not_deleted(head)
        tail = tail_of(head)
        if tail >= entries[-1].next_offset:
            return tail  # others had the same chunks, or the answer to the transaction never came
        if tail != entries[0].first_offset:
            return None
        _check_epochs(head, epochs)
        try:
            archive.table.apply(plan_appends(head, entries, archive.now()))
        except (BelowFloorError, StaleGenerationError):
            return None  # the keys may be collected by now: the objects are put at newer ones
        for entry in entries:
            writer.is_named(entry)
        return entries[-1].next_offset

    return retry_lost_races(attempt)


def _head(archive: DirectArchive, stream: StreamId) -> Head:
    head = archive.table.head(stream.incarnation)
    if head is None:
        raise StreamNotFoundError(f"{stream} is not in the manifest")
    return head


def _check_begins(head: Head, chunk: CachedChunk) -> None:
    """Raise unless a chunk begins where the manifest ends."""
    tail, first = tail_of(head), chunk.first_offset
    if first < tail:
        raise ContradictionError(str(head.stream), first, f"a batch straddles the tail, {tail}")
    if first > tail:
        raise BadSequenceError(str(head.stream), first, "offset of a batch", expected=tail, found=first)


def _check_epochs(head: Head, epochs: set[Epoch]) -> None:
    """Raise unless batches of these openings may still come.

    Who recovered an opening, or gave it up, has said that nothing more of it counts, and may have appended since.
    """
    appender = appender_in(head)
    if expired := epochs - {opening.epoch for opening in appender.openings}:
        raise ExpiredEpochError(str(head.stream), min(expired), appender.epoch)


def _cut(stream: StreamId, chunks: Iterable[CachedChunk], fragment_bytes: int) -> Iterator[CutFragment]:
    """Yield the fragments of chunks, each chunk verified. Raises CorruptionError."""
    draft: FragmentDraft | None = None
    expected: ChunkId | None = None
    finished = 0
    try:
        for chunk in chunks:
            draft = draft or _draft(stream, chunk.first_offset)
            # The bytes may come from another process's log, whose own checksum is of its directory alone.
            expected = ChunkId(chunk.first_offset) if expected is None else expected
            for verified in iter_chunks(chunk.data, source=str(stream), expected=expected):
                draft.write(chunk.data)
                draft.add(verified.header, crc32(chunk.data))
                expected = ChunkId(verified.header.next_offset)
            if draft.data_bytes > fragment_bytes and finished < MAX_APPENDS - 1:
                fragment, draft = draft.finish(), None
                finished += 1
                yield fragment
        if draft is not None:
            fragment, draft = draft.finish(), None
            yield fragment
    finally:
        if draft is not None:
            draft.discard()


def _draft(stream: StreamId, first_offset: Offset) -> FragmentDraft:
    return FragmentDraft(
        str(stream),
        first_offset,
        sequence_number=0,
        chunks_before=0,
        data_position=SEGMENT_HEADER_BYTES,
        spool_dir=None,
    )
