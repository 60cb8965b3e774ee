"""`WalReader`: the chunks of write-ahead logs, for who recovers a stream or looks at it while another one appends."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from coldstream.errors import BadLengthError, BadSequenceError, ObjectNotFoundError, UnavailableError
from coldstream.flow.window import Window, map_ahead
from coldstream.format.chunk import iter_chunks
from coldstream.manifest.appender import WalPlace
from coldstream.manifest.stream import Incarnation
from coldstream.store.wal_object import WalEntry, header_bytes_of, parse_header
from coldstream.streams.cache.cached_chunk import CachedChunk
from coldstream.streams.wal.directory import WalDirectory
from coldstream.streams.wal.seal import find_end
from coldstream.streams.wal.shared_reads import SharedReads
from coldstream.streams.wal.store import WalStore
from coldstream.units import KIB, MIB, ByteRange, ChunkId, Epoch

FIRST_READ_BYTES = 64 * KIB
"""Bytes of an object that are read for its header; 700 chunks have room in it."""

_CALLS = 16
_LARGEST_READ_BYTES = 4 * MIB
_IN_FLIGHT_BYTES = 32 * MIB
_LARGEST_GAP_BYTES = 64 * KIB
_ROUNDS = 5
_MOST_ENTRIES = 2_000_000


@dataclass(frozen=True, slots=True)
class _Read:
    """One GET, of entries of one object."""

    sequence: int
    byte_range: ByteRange
    entries: tuple[WalEntry, ...]


class WalReader:
    """Reads WALs in a store. Threads may share it; every call blocks, and has up to 16 requests in flight.

    It keeps the directories of the WALs that it read last: 10,000 streams of a dead writer cost each object's header
    once. Memory: 32 bytes a chunk that is not trimmed, and 64 MiB, or one WAL's if that is more.
    """

    def __init__(self, store: WalStore) -> None:
        self._store = store
        self._reads = SharedReads(store)
        self._directories: OrderedDict[WalPlace, tuple[threading.Lock, WalDirectory]] = OrderedDict()
        self._lock = threading.Lock()

    def durable_end(self, place: WalPlace) -> int:
        """Return the first sequence that is not durable as of now, without sealing. Cost: one LIST, up to 32 GETs.

        Raises UnavailableError.
        """
        failure: ObjectNotFoundError | None = None
        with ThreadPoolExecutor(_CALLS) as executor:
            for _ in range(_ROUNDS):
                try:
                    return find_end(self._store, place, executor).sequence
                except ObjectNotFoundError as err:
                    failure = err  # trimmed since it was listed: the writer is far ahead
        raise UnavailableError(f"the end of the write-ahead log {place} moved on {_ROUNDS} times") from failure

    def entries(self, place: WalPlace, end: int, incarnation: Incarnation, epoch: Epoch) -> list[tuple[int, WalEntry]]:
        """Return what a stream's opening has in the objects below `end`, with their sequences, in order.

        `end` is what `seal` or `durable_end` returned. Objects that were trimmed are left out, even after they were
        listed: their chunks are in the manifest. Cost: nothing if the WAL was read up to `end` before, else one LIST,
        and one GET of 64 KiB an object, two if its directory is longer, and a LIST for those that are trimmed
        meanwhile. Raises UnavailableError and CorruptionError.
        """
        with self._lock:
            lock, directory = self._directories.setdefault(place, (threading.Lock(), WalDirectory()))
            self._directories.move_to_end(place)
            while len(self._directories) > 1 and sum(one.size for _, one in self._directories.values()) > _MOST_ENTRIES:
                self._directories.popitem(last=False)
        with lock:
            if directory.next < end:
                self._extend(directory, place, end)
            return directory.entries(incarnation, epoch, end)

    def read_chunks(self, place: WalPlace, entries: Iterable[tuple[int, WalEntry]]) -> Iterator[CachedChunk]:
        """Yield the chunks of entries, in order, each one verified. Memory: 32 MiB, or two chunks if these are larger.

        Cost: one GET for the neighbours in an object, of up to 4 MiB; less if many streams are read at a time (see
        `SharedReads`, whose memory comes on top). Raises UnavailableError, CorruptionError, and
        ObjectNotFoundError if an object was trimmed since: its chunks are in the manifest.
        """
        with ThreadPoolExecutor(_CALLS) as executor:
            window: Window[tuple[_Read, bytes]] = Window(executor, max_calls=_CALLS, max_weight=_IN_FLIGHT_BYTES)
            try:
                for read in _reads(entries):
                    while not window.has_room(len(read.byte_range)):
                        yield from self._chunks(place, *window.take())
                    window.submit(lambda read=read: (read, self._get(place, read)), len(read.byte_range))  # type: ignore[misc]
                while len(window):
                    yield from self._chunks(place, *window.take())
            finally:
                window.cancel()

    def _extend(self, directory: WalDirectory, place: WalPlace, end: int) -> None:
        listed = set(self._store.sequences(place))
        directory.keep(listed)
        with ThreadPoolExecutor(_CALLS) as executor:
            self._read_headers(executor, directory, place, sorted(at for at in listed if directory.next <= at < end))
        directory.next = end

    def _read_headers(
        self, executor: Executor, directory: WalDirectory, place: WalPlace, sequences: Sequence[int]
    ) -> None:
        left = set(sequences)
        found = map_ahead(executor, lambda at: self._header(place, at), sequences, max_calls=_CALLS)
        for sequence, entries in zip(sequences, found, strict=True):
            if entries is None and sequence in left:
                # Gone, says the store, and so its chunks are in the manifest. They may be nowhere if that is wrong.
                left = set(self._store.sequences(place))
                if sequence in left:
                    raise UnavailableError(f"{place}/{sequence} is listed, and cannot be found")
            directory.add(sequence, entries or ())
            # One by one: if a later one fails, these are not added twice.
            directory.next = sequence + 1

    def _header(self, place: WalPlace, sequence: int) -> tuple[WalEntry, ...] | None:
        source = f"{place}/{sequence}"
        try:
            view = self._store.read(place, sequence, ByteRange(0, FIRST_READ_BYTES))
            size = header_bytes_of(view, source=source)
            if size > len(view) == FIRST_READ_BYTES:
                # From its start: the garbage collection may have emptied the object since.
                view = self._store.read(place, sequence, ByteRange(0, size))
        except ObjectNotFoundError:
            return None
        return parse_header(view, source=source).entries

    def _chunks(self, place: WalPlace, read: _Read, data: bytes) -> Iterator[CachedChunk]:
        source = f"{place}/{read.sequence}"
        for entry in read.entries:
            at = entry.byte_range.start
            part = data[at - read.byte_range.start : entry.byte_range.end - read.byte_range.start]
            if len(part) != len(entry.byte_range):
                if entry not in (self._header(place, read.sequence) or ()):
                    # The garbage collection has emptied the object since its header was read.
                    raise ObjectNotFoundError(source)
                expected = len(entry.byte_range)
                raise BadLengthError(source, at, "bytes of a chunk", expected=expected, found=len(part))
            yield _chunk(source, at, entry, part)

    def _get(self, place: WalPlace, read: _Read) -> bytes:
        return self._reads.read(place, read.sequence, read.byte_range)


def _reads(entries: Iterable[tuple[int, WalEntry]]) -> Iterator[_Read]:
    """Put neighbours in one GET: those of one object, unless what lies between them is more than a request is worth."""
    gathered: list[WalEntry] = []
    of = -1
    for sequence, entry in entries:
        if gathered and (sequence != of or not _is_near(gathered, entry)):
            yield _read(of, gathered)
            gathered = []
        of = sequence
        gathered.append(entry)
    if gathered:
        yield _read(of, gathered)


def _is_near(gathered: Sequence[WalEntry], entry: WalEntry) -> bool:
    gap = entry.byte_range.start - gathered[-1].byte_range.end
    together = entry.byte_range.end - gathered[0].byte_range.start
    return 0 <= gap <= _LARGEST_GAP_BYTES and together <= _LARGEST_READ_BYTES


def _read(sequence: int, gathered: Sequence[WalEntry]) -> _Read:
    byte_range = ByteRange(gathered[0].byte_range.start, gathered[-1].byte_range.end)
    return _Read(sequence, byte_range, tuple(gathered))


def _chunk(source: str, position: int, entry: WalEntry, data: bytes) -> CachedChunk:
    chunks = list(iter_chunks(data, source=source, position=position, expected=ChunkId(entry.first_offset)))
    header = chunks[0].header
    expected, found = (entry.next_offset, entry.epoch), (chunks[-1].header.next_offset, header.epoch)
    if expected != found or len(chunks) != 1:
        raise BadSequenceError(source, position, "next offset and epoch of a chunk", expected=expected, found=found)
    return CachedChunk(entry.first_offset, entry.next_offset, header.timestamp, header.epoch, data)
