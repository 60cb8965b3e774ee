"""Read a stream from the archive: chunks or messages from any offset spec on, by the resolver's HTTP API alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Literal, Self

from coldstream.errors import AccessDeniedError, BadSequenceError, ColdstreamError, GapError, ObjectNotFoundError
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.read.client import ResolverClient
from coldstream.read.fetch import RangeBatch, RangeFetcher, UrlRefusedError
from coldstream.read.http import ClosedError
from coldstream.read.prefetch import Prefetcher
from coldstream.read.token import Token
from coldstream.resolve.answer import Bounds, RangesQuery
from coldstream.units import MIB, ChunkId, Offset

MAX_REFRESHES = 3
"""Times in a row that ranges are resolved again because their URLs are refused, before that is taken for an answer."""

PAGE_RANGES = 64


class BaseReader:
    """What `Reader` and `AsyncReader` are made of: batches, one a range, exact and without a hole."""

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
    ) -> None:
        if connections < 1:
            raise ValueError(f"a reader needs a connection, got {connections}")
        self._owns_client = isinstance(resolver, str)
        if token is not None and not isinstance(resolver, str):
            raise ValueError("the client that is given has a token of its own, or none")
        self._client = ResolverClient(resolver, token=token) if isinstance(resolver, str) else resolver
        bounds = Bounds(max_ranges=PAGE_RANGES, range_bytes=range_bytes)
        self._query = RangesQuery(vhost, name, start, incarnation, bounds)
        self._connections = connections
        self._prefetch_bytes = prefetch_bytes
        self._on_gap = on_gap
        self._fetcher: RangeFetcher | None = None
        self._expected: Offset | None = None
        self.stream: StreamId | None = None
        self.position: Offset | None = None
        self.tail: Offset | None = None
        self.gaps: list[Gap] = []

    @property
    def from_offset(self) -> Offset:
        """The least offset that may be given: the first chunk of an offset spec may hold earlier ones."""
        return self._query.start.offset if isinstance(self._query.start, AtOffset) else Offset(0)

    def close(self) -> None:
        """End what is under way, and the threads; iteration that goes on raises ClosedError. Safe from any thread."""
        if self._fetcher is not None:
            self._fetcher.close()
        if self._owns_client:
            self._client.close()

    def _batches(self) -> Iterator[RangeBatch]:
        """Yield the chunks that are wanted, range by range; leaves `position` to who consumes them."""
        if self._fetcher is not None:
            raise RuntimeError("a reader reads its stream once")
        self._fetcher = RangeFetcher(self._connections)
        prefetcher = Prefetcher(self._client, self._fetcher, self._query, prefetch_bytes=self._prefetch_bytes)
        refreshes = 0
        try:
            while True:
                try:
                    found = prefetcher.take()
                except UrlRefusedError as err:
                    refreshes += 1
                    if refreshes > MAX_REFRESHES:
                        raise _refused(err) from err
                    prefetcher.seek(self._query.start if self._expected is None else AtOffset(self._expected))
                    continue
                self.stream = prefetcher.stream
                match found:
                    case RangeBatch():
                        refreshes = 0
                        batch = self._accept(found)
                        if batch.chunks:
                            yield batch
                    case Gap():
                        self._pass(found)
                        prefetcher.seek(AtOffset(found.next_offset))
                    case tail:
                        self.tail = tail
                        return
        except CancelledError:
            raise ClosedError from None
        finally:
            self.close()

    def _accept(self, batch: RangeBatch) -> RangeBatch:
        """Take from a batch what is expected next: nothing before the start, nothing twice, and nothing left out."""
        chunks = batch.chunks
        is_attached = self._expected is not None
        if self._expected is None:
            self._expected = self._attach(batch)
        if self._expected is None:
            return replace(batch, chunks=[])
        if batch.range.first_offset > self._expected:
            self._pass(Gap(self._expected, batch.range.first_offset))
        number = next(
            (number for number, chunk in enumerate(chunks) if chunk.header.next_offset > self._expected), len(chunks)
        )
        wanted = chunks[number:]
        if wanted:
            found = int(wanted[0].header.chunk_id)
            if is_attached and found != self._expected:
                raise BadSequenceError(
                    batch.range.key, wanted[0].position, "chunk id", expected=self._expected, found=found
                )
            self._expected = wanted[-1].header.next_offset
        return replace(batch, chunks=wanted)

    def _attach(self, batch: RangeBatch) -> Offset | None:
        """Return the offset to begin with: where the spec attaches, if that is in the batch."""
        match self._query.start:
            case AtOffset(offset):
                return max(offset, batch.range.first_offset)
            case AtTimestamp(timestamp):
                late = (chunk.header.chunk_id for chunk in batch.chunks if chunk.header.timestamp >= timestamp)
                found = next(late, None)
                return None if found is None else Offset(found)
            case AtEnd("last"):
                # Where the object is made of frames, the range begins before that chunk.
                users = (chunk.header.chunk_id for chunk in batch.chunks if chunk.header.type is ChunkType.USER)
                return Offset(max(users, default=ChunkId(batch.range.first_offset)))
            case _:
                return batch.range.first_offset

    def _pass(self, gap: Gap) -> None:
        """Go on behind a gap, if that is wanted."""
        if self._on_gap != "skip":
            raise GapError(str(self.stream), gap.first_offset, gap.next_offset, gap.reason)
        self.gaps.append(gap)
        self._expected = gap.next_offset


class Reader(BaseReader):
    """Reads one stream, once, from `start` on, up to the end of what is archived.

    Iterate `messages`, `chunks` or `batches`, one of them, once. Ranges of about `range_bytes` are fetched over several
    connections at a time; `prefetch_bytes`, and the range that is being consumed, bound the memory. Every chunk's CRC
    is checked, and that it is the successor of the one before. Transient failures are retried, and URLs that expire are
    replaced; what comes out after that is a ColdstreamError.

    `position` is the offset after the last item given, None before the first. At the end `tail` says from which offset
    on the broker has the stream. A gap raises GapError, or with `on_gap` "skip" is added to `gaps` and passed over.

    `token` goes to the resolver as `ResolverClient` says.

    Close the reader, or use it as a context manager. Iterating to the end, or dropping the iterator, closes it too.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def batches(self) -> Iterator[RangeBatch]:
        """Yield chunks range by range: the cheapest way to read. The first chunk may begin before an offset spec."""
        for batch in self._batches():
            self.position = batch.chunks[-1].header.next_offset
            yield batch

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks of every type. The first holds the offset asked for, and may begin before it."""
        for batch in self._batches():
            for chunk in batch.chunks:
                self.position = chunk.header.next_offset
                yield chunk

    def messages(self) -> Iterator[Message]:
        """Yield messages, none of them before the offset, or before the first chunk of the time, that was asked for."""
        for batch in self._batches():
            for chunk in batch.chunks:
                for message in messages(chunk, source=batch.range.key, from_offset=self.from_offset):
                    self.position = Offset(message.offset + 1)
                    yield message
                self.position = chunk.header.next_offset


def _refused(err: UrlRefusedError) -> ColdstreamError:
    if err.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return ObjectNotFoundError(err.key)
    return AccessDeniedError(str(err))
