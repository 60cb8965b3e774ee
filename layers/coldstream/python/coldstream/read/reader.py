"""Read a stream from the archive, from any offset spec on: chunks or messages, by the resolver's HTTP API alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Literal, Self

from coldstream.errors import (
    AccessDeniedError,
    BadSequenceError,
    ColdstreamError,
    GapError,
    NotRestoredError,
    ObjectNotFoundError,
)
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.appetite import EVERYTHING, Appetite
from coldstream.read.client import ResolverClient
from coldstream.read.fetch import ArchivedRangeError, RangeBatch, UrlRefusedError
from coldstream.read.fetch_pool import FetchPool
from coldstream.read.http import ClosedError
from coldstream.read.prefetch import Prefetcher
from coldstream.read.token import Token
from coldstream.resolve.answer import Bounds, RangesQuery
from coldstream.units import MIB, ChunkId, Offset

MAX_REFRESHES = 3
"""How often in a row refused URLs are resolved again. If even fresh ones are refused, that is the answer."""

PAGE_RANGES = 64
"""The most ranges that one answer of the resolver has."""


class BaseReader:
    """What `Reader` and `AsyncReader` share: the parameters, and batches without a hole. `Reader` documents them."""

    def __init__(
        self,
        resolver: str | ResolverClient,
        vhost: str,
        name: str,
        start: OffsetSpec = FIRST,
        *,
        incarnation: str | None = None,
        token: Token | None = None,
        connections: int = 4,
        prefetch_bytes: int = 64 * MIB,
        range_bytes: int = 8 * MIB,
        on_gap: Literal["raise", "skip"] = "raise",
        fetch_pool: FetchPool | None = None,
        appetite: Appetite = EVERYTHING,
    ) -> None:
        if connections < 1:
            raise ValueError(f"a reader needs at least one connection, got {connections}")
        self._owns_client = isinstance(resolver, str)
        if token is not None and not isinstance(resolver, str):
            raise ValueError("a token belongs to the client: give it to the ResolverClient")
        self._client = ResolverClient(resolver, token=token) if isinstance(resolver, str) else resolver
        bounds = Bounds(max_ranges=PAGE_RANGES, range_bytes=range_bytes)
        self._query = RangesQuery(vhost, name, start, incarnation, bounds)
        self._owns_pool = fetch_pool is None
        # Of all that is in memory at a time: what is in flight, and the range that is being consumed.
        self._pool = fetch_pool or FetchPool(connections, buffer_bytes=prefetch_bytes + 2 * range_bytes)
        self._prefetch_bytes = prefetch_bytes
        self._appetite = appetite
        self._on_gap = on_gap
        self._threads: Executor | None = None
        self._expected: Offset | None = None
        self._passed: Offset | None = None
        self._message: Message | None = None
        self.stream: StreamId | None = None
        self.tail: Offset | None = None
        self.floor: Offset | None = None
        self.gaps: list[Gap] = []

    @property
    def position(self) -> Offset | None:
        """The offset after the last item given, None before the first."""
        message = self._message
        # Asked for now and then, while millions of messages are given: so it is not noted with each.
        return self._passed if message is None else Offset(message.offset + 1)

    @property
    def from_offset(self) -> Offset:
        """The first offset that was asked for: the chunk that holds it may begin before it."""
        return self._query.start.offset if isinstance(self._query.start, AtOffset) else Offset(0)

    def close(self) -> None:
        """End what is under way, and the threads. Iteration that goes on raises ClosedError. Safe from any thread."""
        # The threads first: with their futures cancelled, whoever waits for a range is released even if a call hangs.
        if self._threads is not None:
            self._threads.shutdown()
        if self._owns_pool:
            self._pool.close()
        if self._owns_client:
            self._client.close()

    def _batches(self) -> Iterator[RangeBatch]:
        """Yield the chunks that were asked for, range by range. The caller notes what of them was given."""
        if self._threads is not None:
            raise RuntimeError("a reader reads its stream only once")
        # The threads first: a `close` that comes between these lines then refuses the calls of the prefetcher.
        self._threads = self._pool.share()
        prefetcher = Prefetcher(
            self._client,
            self._pool.fetcher,
            self._threads,
            self._query,
            prefetch_bytes=self._prefetch_bytes,
            appetite=self._appetite,
        )
        refreshes = 0
        try:
            while True:
                try:
                    found = prefetcher.take()
                except UrlRefusedError as err:
                    refreshes += 1
                    if refreshes > MAX_REFRESHES:
                        raise _refused(err) from err
                    # The ranges under way have URLs as old as this one: drop them, and resolve again from here.
                    prefetcher.seek(self._query.start if self._expected is None else AtOffset(self._expected))
                    continue
                except ArchivedRangeError as err:
                    raise self._with_command(err, prefetcher) from err
                self.stream, self.floor = prefetcher.stream, prefetcher.floor
                match found:
                    case RangeBatch():
                        refreshes = 0
                        batch = self._accept(found)
                        if batch.chunks:
                            yield batch
                    case Gap():
                        self._skip(found)
                        prefetcher.seek(AtOffset(found.next_offset))
                    case tail:
                        self.tail = tail
                        return
        except CancelledError:  # `close`, from another thread, cancelled what is waited for here
            raise ClosedError from None
        finally:
            self.close()

    def _pass(self, chunk: Chunk) -> None:
        """Note that all of a chunk was given."""
        self._passed = chunk.header.next_offset
        self._message = None

    def _accept(self, batch: RangeBatch) -> RangeBatch:
        """Return the batch from the expected chunk on: nothing before the start, nothing twice, nothing left out."""
        chunks = batch.chunks
        is_attached = self._expected is not None
        if self._expected is None:
            self._expected = self._attach(batch)
        if self._expected is None:
            return replace(batch, chunks=[])
        if batch.range.first_offset > self._expected:
            self._skip(Gap(self._expected, batch.range.first_offset))
        number = next(
            (number for number, chunk in enumerate(chunks) if chunk.header.next_offset > self._expected), len(chunks)
        )
        rest = chunks[number:]
        if rest:
            found = int(rest[0].header.chunk_id)
            # The first chunk of all may begin before the start offset. Any other begins where the last one ended.
            if is_attached and found != self._expected:
                raise BadSequenceError(
                    batch.range.key, rest[0].position, "chunk id", expected=self._expected, found=found
                )
            self._expected = rest[-1].header.next_offset
        return replace(batch, chunks=rest)

    def _attach(self, batch: RangeBatch) -> Offset | None:
        """Return the offset at which the start spec attaches, or None if that is not in the batch."""
        match self._query.start:
            case AtOffset(offset):
                return max(offset, batch.range.first_offset)
            case AtTimestamp(timestamp):
                # The sparse index is coarser than chunks, so the range may begin with earlier ones.
                late = (chunk.header.chunk_id for chunk in batch.chunks if chunk.header.timestamp >= timestamp)
                found = next(late, None)
                return None if found is None else Offset(found)
            case AtEnd("last"):
                # In an object made of frames, the range begins before that chunk.
                users = (chunk.header.chunk_id for chunk in batch.chunks if chunk.header.type is ChunkType.USER)
                return Offset(max(users, default=ChunkId(batch.range.first_offset)))
            case _:
                return batch.range.first_offset

    def _with_command(self, err: ArchivedRangeError, prefetcher: Prefetcher) -> NotRestoredError:
        """Say how to restore what cannot be read, and as much after it as is known to be in such a class, too."""
        vhost = "" if self._query.vhost == "/" else f" --vhost {shlex.quote(self._query.vhost)}"
        offsets = f"{err.range.first_offset}:{prefetcher.archived_to(err.range)}"
        command = f"coldstream restore {shlex.quote(self._query.name)}{vhost} --offsets {offsets}"
        return NotRestoredError(err.key, err.storage_class, command)

    def _skip(self, gap: Gap) -> None:
        """Go on after a gap. Raises GapError unless gaps are to be skipped."""
        if self._on_gap != "skip":
            raise GapError(str(self.stream), gap.first_offset, gap.next_offset, gap.reason)
        self.gaps.append(gap)
        self._expected = gap.next_offset


class Reader(BaseReader):
    """Reads one stream, once, from `start` on, up to the end of what is archived.

    Iterate one of `messages`, `chunks` and `batches`, once. Ranges of about `range_bytes` are fetched over several
    connections at a time. `prefetch_bytes` and the range that is being consumed bound the memory. A caller who knows
    about how much it will take says so by `appetite`: nothing past it is fetched ahead. Every chunk's CRC is checked,
    and so is its place in the sequence. Transient failures are retried and expired URLs are replaced; errors that
    remain are ColdstreamErrors.

    `position` is the offset after the last item given, None before the first. At the end, `tail` is the offset from
    which on the broker has the stream. A gap raises GapError; with `on_gap` "skip" it is added to `gaps`, and reading
    goes on after it.

    A start below what was removed from the archive begins with what is left, as the broker's retention has it; `floor`
    is the offset then below which everything was removed. A range in an archived storage class raises NotRestoredError,
    which names the command that restores it.

    `resolver` is a URL, which `token` belongs to, or a ResolverClient, which the reader does not close. Nor does it
    close a `fetch_pool`, with which readers share threads and connections; `connections` says nothing then.

    Close the reader, or use it as a context manager. Iterating to the end, or dropping the iterator, closes it too.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def batches(self) -> Iterator[RangeBatch]:
        """Yield chunks range by range, the cheapest way to read. The first chunk may begin before the start offset."""
        for batch in self._batches():
            self._pass(batch.chunks[-1])
            yield batch

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks of every type. The first one holds the start offset, and may begin before it."""
        for batch in self._batches():
            for chunk in batch.chunks:
                self._pass(chunk)
                yield chunk

    def messages(self) -> Iterator[Message]:
        """Yield messages from the start offset on, or from the first chunk of the start time."""
        for batch in self._batches():
            for chunk in batch.chunks:
                for message in messages(chunk, source=batch.range.key, from_offset=self.from_offset):
                    # Before the yield: a position noted while the message is handled has to include it.
                    self._message = message
                    yield message
                # A tracking chunk holds no message, and was read all the same.
                self._pass(chunk)


def _refused(err: UrlRefusedError) -> ColdstreamError:
    if err.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return ObjectNotFoundError(err.key)
    return AccessDeniedError(str(err))
