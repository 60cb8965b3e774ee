"""Recovery: what earlier openings of a stream appended, and is in a WAL alone, goes into the manifest.

Each of their WALs is sealed first. What lies below its seal is durable, and part of the stream for good: whoever
recovers it finds the same. It is flushed as a live process flushes: into fragments, which the manifest gets at once,
with a snapshot of the publishers as the last chunk. Several who recover a stream at a time, or a process that was taken
for dead and flushes still, put it at one offset, past the last batch: they make one history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from coldstream.errors import ContradictionError, ObjectNotFoundError, UnavailableError
from coldstream.manifest.appender import WalPlace
from coldstream.manifest.appending import appender_in, tail_of
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.store.wal_object import WalEntry
from coldstream.streams.archive import DirectArchive
from coldstream.streams.batch import tracking_chunk
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.flush.fragments import even_fragment_bytes, flush_chunks
from coldstream.streams.open_stream import OpenStream
from coldstream.streams.opening import forget_earlier, head_of
from coldstream.streams.publishers import Publishers
from coldstream.streams.wals import WalEntries, Wals
from coldstream.units import Offset, TimestampMs

ATTEMPTS = 5
"""How often a recovery begins again because an earlier appender, still alive, archives what is just being read."""


def recover(archive: DirectArchive, wals: Wals, head: Head, fragment_bytes: int, *, force: bool = False) -> OpenStream:
    """Recover what the openings before the last one left, and return the stream as it is then.

    `head` is that of the last opening, which appends nothing meanwhile. With `force`, what is in a WAL alone is given
    up if that cannot be read here.

    Cost: nothing if the stream was closed, but for its publishers: a Query and, if it has any, a GET. Else that of
    sealing and reading the WALs, and of `flush_chunks`, with fragments of `fragment_bytes`, and a conditional write.
    Memory: 32 MiB of the WALs, and 400 bytes a chunk. Disk: one fragment. Raises ExpiredEpochError if another opens the
    stream meanwhile, UnavailableError, CorruptionError, and ContradictionError if batches are lost.
    """
    openings = appender_in(head).openings[:-1]
    readable = [one for one in openings if not force or wals.can_read(one.wal)]
    if not openings:
        return state_of(head, publishers=archived_publishers(archive, head))
    for _ in range(ATTEMPTS):
        stream = head.stream
        # What is trimmed from a WAL is in the manifest before: so the tail is read after the WALs are.
        found = [(one.wal, wals.sealed_entries(one.wal, stream.incarnation, one.epoch)) for one in readable]
        tail = head_of(archive, stream)
        going = continuing(found, tail_of(tail), may_lack=force)
        left = _Left(wals, tail, list(going), archived_publishers(archive, tail))
        try:
            flush_chunks(archive, stream, left, even_fragment_bytes(left.size_bytes, fragment_bytes))
        except ObjectNotFoundError:
            continue
        head = forget_earlier(archive, stream, appender_in(head).epoch)
        return state_of(head, timestamp=left.timestamp, publishers=left.publishers)
    raise UnavailableError(f"{head.stream} could not be recovered: its log was trimmed {ATTEMPTS} times meanwhile")


def state_of(head: Head, *, timestamp: TimestampMs | None = None, publishers: Publishers | None = None) -> OpenStream:
    """Return the state of a stream, all of which is in the manifest."""
    appender = appender_in(head)
    return OpenStream(
        head.stream,
        appender.epoch,
        dict(appender.properties),
        max(appender.start, appender.first, head.floor),
        tail_of(head),
        _timestamp_of(head) if timestamp is None else max(timestamp, _timestamp_of(head)),
        appender.is_sealed,
        None if publishers is None or publishers.state.is_empty else publishers,
    )


def archived_publishers(archive: DirectArchive, head: Head) -> Publishers:
    """Read what the last chunk of the archive tells of publishers. Cost: a Query; a GET if there are any."""
    publishers = Publishers()
    if head.first_offset is None:
        return publishers
    last = next(iter(archive.table.log_end(head.stream.incarnation, 1).entries), None)
    if last is None or last.messages == last.records:
        return publishers  # no chunk of it takes an offset without a message
    start = Offset(last.next_offset - 1)
    for part in plan_scan(archive.table, head.stream, start, last.next_offset, exactly=True):
        if isinstance(part, ScanSlice):
            for chunk in read_slice(archive.objects, part):
                publishers.learn_chunk(chunk, source=part.key)
    return publishers


def sealed_publishers(archive: DirectArchive, stream: StreamId) -> Publishers:
    """Read what a stream tells of its publishers that nobody appends to any more.

    Cost: that of `archived_publishers`, and a GetItem. Raises StreamNotFoundError.
    """
    return archived_publishers(archive, head_of(archive, stream))


@dataclass(slots=True)
class _Left:
    """What is in WALs alone, past the tail of a head; each iteration reads it anew.

    `archived` are the publishers that the archive tells; `publishers` and `timestamp` are those at the end, once it was
    iterated.
    """

    wals: Wals
    head: Head
    found: Sequence[tuple[WalPlace, Sequence[tuple[int, WalEntry]]]]
    archived: Publishers
    publishers: Publishers = field(init=False)
    timestamp: TimestampMs = field(init=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks."""
        return sum(len(entry.byte_range) for _, some in self.found for _, entry in some)

    def __post_init__(self) -> None:
        self._begin()

    def __iter__(self) -> Iterator[CachedChunk]:
        """Yield the chunks, and a snapshot of the publishers after them, if there are both."""
        self._begin()
        last: CachedChunk | None = None
        for place, some in self.found:
            for chunk in self.wals.chunks(place, some):
                self.publishers.learn(chunk.data, source=f"batch at offset {chunk.first_offset}")
                self.timestamp = max(self.timestamp, chunk.timestamp)
                last = chunk
                yield chunk
        if last is not None and not self.publishers.state.is_empty:
            first, epoch = last.next_offset, appender_in(self.head).epoch
            data = tracking_chunk(self.publishers.snapshot(), first, self.timestamp, epoch)
            yield CachedChunk(first, Offset(first + 1), self.timestamp, epoch, data)

    def _begin(self) -> None:
        self.publishers = self.archived.copy()
        self.timestamp = _timestamp_of(self.head)


def continuing(
    found: Iterable[tuple[WalPlace, WalEntries]], tail: Offset, *, may_lack: bool
) -> Iterator[tuple[WalPlace, list[tuple[int, WalEntry]]]]:
    """Yield what openings appended from `tail` on, one after the other.

    Unless the WALs `may_lack` something, as those that are not sealed do, a hole raises ContradictionError: what is
    past it was acknowledged, and must not be given up without a word. Else each opening is yielded up to its first.
    """
    at = tail
    for place, entries in found:
        going: list[tuple[int, WalEntry]] = []
        for sequence, entry in entries:
            if entry.next_offset <= at:
                continue
            if entry.first_offset > at and may_lack:
                break
            if entry.first_offset > at:
                why = f"the batches from {at} on are lost; open_stream(force=True) gives up what follows them, too"
                raise ContradictionError(str(place), entry.first_offset, why)
            if entry.first_offset < at:
                raise ContradictionError(str(place), entry.first_offset, f"a batch straddles the tail, {at}")
            going.append((sequence, entry))
            at = entry.next_offset
        yield place, going


def _timestamp_of(head: Head) -> TimestampMs:
    return head.greatest_timestamp or head.floor_timestamp or TimestampMs(0)
