"""The recovery log of a cluster as `coldstream recover` reads it: the objects of all nodes, by stream.

Of each stream it takes the union of what the nodes have: runs that follow or overlap one another are joined, chunk by
chunk. Two nodes may have two histories of the same offsets, as after a cluster went on from an older copy. Then the
runs that differ from the first ones stay apart, and are contested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from coldstream.archive.contradiction import is_same_chunk
from coldstream.errors import BadSequenceError, CorruptionError, ObjectNotFoundError
from coldstream.format.chunk import ChunkHeader
from coldstream.format.scanner import SegmentScanner, WholeChunk
from coldstream.format.segment import SEGMENT_HEADER
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.parsed_keys import KeyKind
from coldstream.store.ports import ListedObject, ObjectStore
from coldstream.store.recovery_log import read_run, read_span_header
from coldstream.store.second_look import look_twice
from coldstream.store.span_object import LoggedRun, SpanEntry, SpanHeader
from coldstream.units import MIB, Offset

UNION_BYTES = 64 * MIB
"""Of runs that are joined; in memory at a time."""


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """An entry of the object at `key`."""

    key: str
    entry: SpanEntry


@dataclass(slots=True)
class SpanLog:
    """All objects of a cluster: their nodes, their sizes, what they hold by stream, and those that are damaged."""

    nodes: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    streams: dict[StreamId, list[LoggedEntry]] = field(default_factory=dict)
    damaged: dict[str, CorruptionError] = field(default_factory=dict)


def read_log(objects: ObjectStore, keys: Keys, advance: Callable[[int], None]) -> SpanLog:
    """Read what the log holds; `advance` is told each object. Cost: a listing a thousand, and a GET an object.

    Memory: some 300 bytes an entry. Raises UnavailableError.
    """
    log = SpanLog()
    for listed in objects.listed(keys.all_spans):
        parsed = keys.parse(listed.key)
        if parsed is None or parsed.kind is not KeyKind.SPAN or parsed.cluster != keys.cluster:
            continue
        try:
            header = look_twice(partial(_header_of, objects, listed))
        except ObjectNotFoundError:  # deleted by its agent since it was listed
            continue
        except CorruptionError as err:
            log.damaged[listed.key] = err
        else:
            for entry in header.entries:
                log.streams.setdefault(entry.stream, []).append(LoggedEntry(listed.key, entry))
        log.nodes.add(str(parsed.node))
        log.sizes[listed.key] = listed.size_bytes
        advance(1)
    for entries in log.streams.values():
        entries.sort(key=lambda one: (one.entry.first_offset, -one.entry.next_offset))
    return log


def _header_of(objects: ObjectStore, listed: ListedObject) -> SpanHeader:
    header = read_span_header(objects, listed.key)
    if header.object_bytes != listed.size_bytes:
        raise BadSequenceError(
            listed.key, 0, "size of the object", expected=header.object_bytes, found=listed.size_bytes
        )
    return header


def adjoining(entries: Sequence[LoggedEntry]) -> Iterator[list[LoggedEntry]]:
    """Group a stream's entries, in order, into those that leave no hole between them, of UNION_BYTES at most."""
    group: list[LoggedEntry] = []
    reached, size_bytes = Offset(0), 0
    for one in entries:
        entry = one.entry
        if group and (entry.first_offset > reached or size_bytes + len(entry.byte_range) > UNION_BYTES):
            yield group
            group, size_bytes = [], 0
        reached = max(reached, entry.next_offset) if group else entry.next_offset
        group.append(one)
        size_bytes += len(entry.byte_range)
    if group:
        yield group


@dataclass(slots=True)
class Union:
    """Chunks of a stream from `first_offset` on without a hole, joined of the runs of `entries`."""

    stream: StreamId
    first_offset: Offset
    next_offset: Offset
    entries: list[LoggedEntry] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    headers: dict[int, ChunkHeader] = field(default_factory=dict)

    def add(self, one: LoggedEntry, run: Sequence[WholeChunk]) -> bool:
        """Join a run that begins at or before the end; return False if it is of another history."""
        if any(not self._agrees(chunk.header) for chunk in run):
            return False
        for chunk in run:
            if chunk.header.chunk_id >= self.next_offset:
                self.chunks.append(bytes(chunk.view))
                self.headers[int(chunk.header.chunk_id)] = chunk.header
                self.next_offset = chunk.header.next_offset
        self.entries.append(one)
        return True

    def _agrees(self, header: ChunkHeader) -> bool:
        if header.chunk_id >= self.next_offset:
            return True
        if header.chunk_id < self.first_offset:
            return False
        other = self.headers.get(int(header.chunk_id))
        return other is not None and is_same_chunk(header, other)


def read_chunks(objects: ObjectStore, one: LoggedEntry) -> tuple[WholeChunk, ...]:
    """Read and verify the chunks of an entry. Cost: one GET. Raises CorruptionError, ObjectNotFoundError."""
    run = read_run(objects, one.key, one.entry)
    return tuple(_verified(run, f"{one.key} at byte {one.entry.byte_range.start}"))


def join(
    runs: Iterable[tuple[LoggedEntry, Sequence[WholeChunk]]],
) -> Iterator[Union]:
    """Join runs in the order of their first offsets; what does not agree with the union before begins another one.

    A hole, which a damaged run may leave, begins another one as well.
    """
    unions: list[Union] = []
    for one, run in runs:
        entry = one.entry
        if any(union.next_offset >= entry.first_offset and union.add(one, run) for union in unions):
            continue
        fresh = Union(entry.stream, entry.first_offset, entry.first_offset)
        fresh.add(one, run)
        unions.append(fresh)
    yield from unions


def _verified(run: LoggedRun, source: str) -> Iterator[WholeChunk]:
    scanner = SegmentScanner(source, first_offset=run.first_offset)
    reached: int = run.first_offset
    # In one block, so that every chunk is whole in it.
    for event in scanner.feed_whole(SEGMENT_HEADER + run.data):
        if isinstance(event, WholeChunk):
            reached = event.header.next_offset
            yield event
    scanner.close()
    if reached != run.next_offset:
        raise BadSequenceError(source, len(run.data), "next offset of a run", expected=run.next_offset, found=reached)
