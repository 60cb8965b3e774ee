"""Read a sharded stream from the archive alone, by its logical name: each partition up to the tail of its archive."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from contextlib import closing
from types import TracebackType
from typing import Literal, Self

from coldstream.errors import InvalidInputError, StreamNotFoundError
from coldstream.format.amqp.message import Message, messages
from coldstream.format.chunk import Chunk
from coldstream.manifest.entry import Gap
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_map import Partition, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import ShardStart, last_seal, readable_version, shard_starts
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, OffsetSpec
from coldstream.read.appetite import EVERYTHING, Appetite
from coldstream.read.client import ResolverClient
from coldstream.read.reader import Reader
from coldstream.units import KIB, MIB, Offset

_MIN_RANGE_BYTES = 256 * KIB


class ShardedReader:
    """Reads a sharded stream once, from `start` on, up to the end of what is archived of each partition.

    `found` is its map. `order` "key" reads one partition after another, each as far as the order of keys allows;
    "arrival" does not mind that; "time" merges all by the timestamps of their chunks, with as many readers open.

    Iterate `messages`, once. Each comes with the name of its partition. `position` says where to go on, None until the
    starts are known; `gaps` are those that were skipped; `held` the numbers of partitions that wait, at the end, for
    others to be archived further. `appetite` is that of each partition. Errors are those of `Reader`.
    """

    def __init__(
        self,
        client: ResolverClient,
        found: ShardMap,
        start: ShardStart = FIRST,
        *,
        order: Literal["key", "time", "arrival"] = "key",
        on_gap: Literal["raise", "skip"] = "raise",
        prefetch_bytes: int = 64 * MIB,
        range_bytes: int = 8 * MIB,
        appetite: Appetite = EVERYTHING,
    ) -> None:
        if isinstance(start, ShardPosition) and any(number >= len(found.partitions) for number in start.offsets):
            raise InvalidInputError("position", f"{start} is not of {found}")
        self._client = client
        self._map = found
        self._starts = shard_starts(found, start)
        self._order = order
        self._on_gap: Literal["raise", "skip"] = on_gap
        self._prefetch_bytes = prefetch_bytes
        self._range_bytes = range_bytes
        self._appetite = appetite
        self._key_order = KeyOrder(found, {})
        self._offsets: dict[int, Offset] = {}
        self._open: set[Reader] = set()
        self.gaps: list[Gap] = []
        self.held: tuple[int, ...] = ()
        for version in found.versions[: readable_version(found).version]:
            for number in version.partitions:
                if number not in self._starts:
                    self._key_order.finish(number)
                    if isinstance(start, AtEnd) and start != FIRST:
                        self._offsets[number] = last_seal(found, number) or Offset(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def position(self) -> ShardPosition | None:
        """Where to go on after the last message given."""
        if not self._starts.keys() <= self._offsets.keys():
            return None
        return ShardPosition(readable_version(self._map).version, dict(self._offsets))

    def close(self) -> None:
        """End what is under way. Safe from any thread."""
        for reader in list(self._open):
            reader.close()

    def messages(self) -> Iterator[tuple[str, Message]]:
        """Yield each message with the name of its partition."""
        for number, spec in self._starts.items():
            self._offsets[number] = self._settled(number, spec)
            self._key_order.read_to(number, self._offsets[number])
        if self._order == "time":
            yield from self._merged()
        else:
            yield from self._in_turn()

    def _in_turn(self) -> Iterator[tuple[str, Message]]:
        """Read one partition after another, and again those that waited for one of them."""
        left = list(self._starts)
        while left:
            before = dict(self._offsets)
            waiting: list[int] = []
            for number in left:
                limit = self._limit(number)
                if (limit is not None and self._offsets[number] >= limit) or (yield from self._to_limit(number, limit)):
                    waiting.append(number)
            if self._offsets == before and len(waiting) == len(left):
                self.held = tuple(waiting)
                return
            left = waiting

    def _to_limit(self, number: int, limit: Offset | None) -> Generator[tuple[str, Message], None, bool]:
        """Yield messages of one partition; the result tells whether a limit ended it, and not the archive."""
        partition = self._map.partitions[number]
        with closing(self._chunks(number)) as chunks:
            for chunk, source in chunks:
                if limit is not None and chunk.header.next_offset > limit:
                    return True
                yield from self._of_chunk(partition, chunk, source)
        return False

    def _merged(self) -> Iterator[tuple[str, Message]]:
        lanes = {number: self._chunks(number, sharing=len(self._starts)) for number in self._starts}
        heap: list[tuple[int, int, Chunk, str]] = []

        def push(number: int) -> None:
            if (following := next(lanes[number], None)) is not None:
                chunk, source = following
                # No two entries have the same number, so that chunks are never compared.
                heapq.heappush(heap, (chunk.header.timestamp, number, chunk, source))

        for number in lanes:
            push(number)
        while heap:
            _, number, chunk, source = heapq.heappop(heap)
            yield from self._of_chunk(self._map.partitions[number], chunk, source)
            push(number)

    def _of_chunk(self, partition: Partition, chunk: Chunk, source: str) -> Iterator[tuple[str, Message]]:
        number = partition.number
        for message in messages(chunk, source=source, from_offset=self._offsets[number]):
            # Before the yield: a position noted while the message is handled has to include it.
            self._offsets[number] = Offset(message.offset + 1)
            yield partition.name, message
        self._moved(number, chunk.header.next_offset)

    def _moved(self, number: int, offset: Offset) -> None:
        self._offsets[number] = max(offset, self._offsets[number])
        self._key_order.read_to(number, self._offsets[number])

    def _limit(self, number: int) -> Offset | None:
        return self._key_order.limit(number) if self._order == "key" else None

    def _chunks(self, number: int, *, sharing: int = 1) -> Generator[tuple[Chunk, str], None, None]:
        """Yield the chunks of a partition from its offset on, each with its source, up to the tail."""
        reader = self._reader(number, AtOffset(self._offsets[number]), sharing)
        try:
            for batch in reader.batches():
                for chunk in batch.chunks:
                    yield chunk, batch.range.key
            self._moved(number, reader.tail or Offset(0))
        except StreamNotFoundError:
            if self._map.partitions[number].deleted_at is not None:
                self._key_order.finish(number)
        finally:
            self._close(reader)

    def _settled(self, number: int, spec: OffsetSpec) -> Offset:
        """Return the offset that a start spec leads to in a partition; 0 if nothing of it is archived."""
        if isinstance(spec, AtOffset):
            return spec.offset
        if spec == FIRST:
            return Offset(0)
        reader = self._reader(number, spec, sharing=len(self._starts))
        try:
            for batch in reader.batches():
                return Offset(batch.chunks[0].header.chunk_id)
        except StreamNotFoundError:
            return Offset(0)
        finally:
            self._close(reader)
        return reader.tail or Offset(0)

    def _reader(self, number: int, spec: OffsetSpec, sharing: int) -> Reader:
        partition = self._map.partitions[number]
        prefetch_bytes = max(1, self._prefetch_bytes // sharing)
        reader = Reader(
            self._client,
            self._map.vhost,
            partition.name,
            spec,
            incarnation=partition.incarnation,
            connections=max(1, 4 // sharing),
            prefetch_bytes=prefetch_bytes,
            range_bytes=min(self._range_bytes, max(_MIN_RANGE_BYTES, prefetch_bytes)),
            on_gap=self._on_gap,
            appetite=self._appetite,
        )
        self._open.add(reader)
        return reader

    def _close(self, reader: Reader) -> None:
        self.gaps += reader.gaps
        self._open.discard(reader)
        reader.close()
