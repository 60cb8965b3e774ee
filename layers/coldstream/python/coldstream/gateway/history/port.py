"""The port to the archive: what takeover and archive-only mode ask, and no more.

Every question may raise UnavailableError (retryable: ask again later; AccessDeniedError: not so) and CorruptionError. A
question can be cancelled at any moment, and ends at once, whatever the archive does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """What is archived of a stream's newest incarnation: offsets `first_offset` up to, not including, `tail`.

    There may be gaps in between. `is_direct` tells that no broker ever had it (`coldstream.streams`): then messages may
    be confirmed that are past `tail`. `first_offset` equals `tail` if everything was removed from the archive, or if
    nothing of a direct stream is archived yet; for any other stream of which nothing is archived there are no bounds.
    """

    incarnation: Incarnation
    first_offset: Offset
    tail: Offset
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class ArchivedHeader:
    """The header of an archived chunk. With `is_erased`, messages of its fragment may have been erased since.

    Of an erased fragment, the sizes and the CRC of a chunk's data may differ from those that the broker has.
    """

    header: ChunkHeader
    is_erased: bool = False

    def is_of(self, header: ChunkHeader) -> bool:
        """Tell whether the broker's chunk of this header is the one that was archived."""
        mine = self.header
        if (mine.type, mine.entries, mine.records) != (header.type, header.entries, header.records):
            return False
        if (mine.timestamp, mine.epoch, mine.chunk_id) != (header.timestamp, header.epoch, header.chunk_id):
            return False
        return self.is_erased or (mine.crc, mine.data_bytes) == (header.crc, header.data_bytes)


class ChunkReading(Protocol):
    """Chunks of one incarnation, of every type, verified, each beginning where the one before ends.

    Use it as an async context manager and an async iterator, once. The first chunk holds the start offset, and may
    begin before it. Iteration ends before the end offset, or at what is archived by then: whoever wants more asks
    `bounds` again. It raises GapError where the archive has a hole; a new reading from its `next_offset` goes on.
    UnavailableError comes after bounded retries; a new reading from the last chunk's next offset goes on.

    A chunk's views share megabytes with other chunks, which count as free once the next is taken, or if others need the
    memory while nobody takes: let go of a chunk before you wait for anything else. Whoever takes no more chunks stops
    the requests to the archive. `close` returns at once, and an iteration that waits then ends.
    """

    async def __aenter__(self) -> Self:
        """Begin to read ahead."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close it."""
        ...

    def __aiter__(self) -> AsyncIterator[Chunk]:
        """Return itself."""
        ...

    async def __anext__(self) -> Chunk:
        """Wait for the next chunk."""
        ...

    def take(self) -> Chunk | None:
        """Return the next chunk if it is there already, without waiting; None says nothing of what will come."""
        ...

    def close(self) -> None:
        """End the requests that are under way, and give back the memory. Again is the same."""
        ...


class History(Protocol):
    """The archive. Names are those of vhost and stream; an unknown one is no error."""

    async def bounds(self, vhost: str, stream: str, *, fresh: bool = False) -> StreamBounds | None:
        """Return the bounds as they were up to about two seconds ago, or with `fresh` as they are now.

        None if nothing is archived of a stream, or it is deleted.
        """
        ...

    async def attach(self, vhost: str, stream: str, spec: OffsetSpec) -> Offset | None:
        """Return the offset from which on a reading begins for a spec; None at or past the archive's tail.

        An offset stands for itself, raised to the first archived one. `first`, `last` and a timestamp stand for a
        chunk's id; for a timestamp it is the first offset of a gap that may hide the chunk.
        """
        ...

    async def header_at(self, vhost: str, stream: str, offset: Offset) -> ArchivedHeader | None:
        """Return the header of the chunk that holds an offset; None if no archived chunk does."""
        ...

    def read(
        self, vhost: str, stream: str, incarnation: Incarnation, start: Offset, end: Offset | None = None
    ) -> ChunkReading:
        """Read the chunks that hold offsets from `start` up to, not including, `end`, or what is archived of them."""
        ...

    async def stored_offset(self, vhost: str, stream: str, reference: str) -> Offset | None:
        """Return the offset that was noted last for a reference, None if none was."""
        ...

    def note_offset(self, vhost: str, stream: str, reference: str, offset: Offset) -> None:
        """Note an offset that a client stored: the last one counts, even if it is less. It is written soon after.

        It is one of the incarnation that was known last: a stream that is declared anew has none.
        """
        ...

    async def streams(self, vhost: str) -> tuple[str, ...]:
        """Return the names of the archived streams of a vhost that are not deleted, sorted."""
        ...

    async def shard_map(self, vhost: str, name: str) -> ShardMap | None:
        """Return the map of a sharded stream's logical name, None if it is none."""
        ...

    async def flush(self) -> None:
        """Write the offsets that are noted, as far as that is possible within seconds."""
        ...

    async def close(self) -> None:
        """Flush, and end all readings and questions. Whoever waits for one gets ClosedError of `read.http`."""
        ...
