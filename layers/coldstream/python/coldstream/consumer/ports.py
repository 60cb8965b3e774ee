"""What following a stream asks of the broker and of the archive."""

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
    """User chunks of a stream, in order; iteration waits for the next one."""

    @property
    def next_offset(self) -> Offset:
        """The offset after the last chunk that has arrived, whether it was asked for or not; 0 before the first."""
        ...

    def __aiter__(self) -> AsyncIterator[Chunk]: ...


class BrokerSource(Protocol):
    """A broker's vhost. Everything raises UnavailableError, AccessDeniedError, StreamNotFoundError."""

    def subscribe(self, stream: str, spec: OffsetSpec) -> AbstractAsyncContextManager[ChunkFeed]:
        """Return the chunks from where `spec` attaches."""
        ...

    async def probe(self, stream: str, spec: OffsetSpec) -> Chunk | None:
        """Return the first chunk that is delivered for a spec; None when none comes soon."""
        ...

    async def first_offset(self, stream: str) -> Offset | None:
        """Return where the stream begins at the broker, be it with a tracking chunk; None when that does not come soon.

        A broker that does not deliver those tells its first user chunk's.
        """
        ...

    async def query_offset(self, stream: str, reference: str) -> Offset | None:
        """Return the offset stored under a consumer's name; None when there is none."""
        ...

    async def renew(self) -> None:
        """Take the next connection, after one was of no use."""
        ...


class ArchiveReading(Protocol):
    """One reading of the archive, as `serve.aio.AsyncReader` is one.

    `stream` is known once there is an answer; `tail` at the end.
    """

    stream: StreamId | None
    tail: Offset | None

    def batches(self) -> AsyncIterator[RangeBatch]:
        """Yield chunks of every type without a hole. Raises GapError, StreamNotFoundError, UnavailableError."""
        ...


class ArchiveSource(Protocol):
    """The archive of one stream."""

    def read(
        self, start: OffsetSpec, incarnation: Incarnation | None, *, chunk: bool = False
    ) -> AbstractAsyncContextManager[ArchiveReading]:
        """Return a reading from `start` on, of the newest incarnation where None is named.

        `chunk` says that no more than the first chunk is wanted.
        """
        ...
