"""What a follower needs of the broker and of the archive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from coldstream.format.chunk import Chunk
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.fetch import RangeBatch
from coldstream.units import Offset


class ChunkFeed(Protocol):
    """User chunks of a stream, in order. Iteration waits for the next one and never ends."""

    @property
    def next_offset(self) -> Offset:
        """The offset after the last chunk that has arrived, whether or not it was taken; 0 before the first."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing arrives any more. What has arrived comes all the same; another node may answer questions."""
        ...

    def __aiter__(self) -> AsyncIterator[Chunk]: ...


class BrokerSource(Protocol):
    """A vhost of a broker. Every method may raise UnavailableError, AccessDeniedError and StreamNotFoundError."""

    def subscribe(self, stream: str, spec: OffsetSpec) -> AbstractAsyncContextManager[ChunkFeed]:
        """Return the chunks from where `spec` attaches."""
        ...

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        """Return the first user chunk that the broker delivers for a spec, or None if none comes soon."""
        ...

    async def first_offset(self, stream: str) -> Offset | None:
        """Return the first offset that the broker has, even if it is a tracking chunk's; None if no answer comes soon.

        Brokers that do not deliver tracking chunks answer with the first user chunk's.
        """
        ...

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Return the offset stored under a consumer's name, or None if there is none."""
        ...

    async def renew(self) -> None:
        """Drop the connection, which was of no use; the next call opens another."""
        ...


class ArchiveReading(Protocol):
    """One reading of the archive, such as a `coldstream.read.aio.AsyncReader`.

    `stream` is None until the resolver has answered; `tail` is None until the end of the archive is reached. `floor` is
    there if reading was to begin below it: everything below was removed from the archive.
    """

    stream: StreamId | None
    floor: Offset | None
    tail: Offset | None

    def batches(self) -> AsyncIterator[RangeBatch]:
        """Yield chunks of every type without a hole. Raises GapError, StreamNotFoundError, UnavailableError."""
        ...


class ArchiveSource(Protocol):
    """The archive of one stream."""

    def read(
        self, start: OffsetSpec, incarnation: Incarnation | None, *, chunk: bool = False
    ) -> AbstractAsyncContextManager[ArchiveReading]:
        """Return a reading from `start` on, of the given incarnation or, with None, of the newest.

        `chunk` says that the caller takes only the first chunk, so that little is fetched ahead.
        """
        ...
