"""The consumer for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from coldstream.consumer.base import BaseConsumer
from coldstream.consumer.items import MessageDelivery
from coldstream.format.amqp.message import Message
from coldstream.format.chunk import Chunk


class Consumer(BaseConsumer):
    """Reads a stream without end: the archive first, then live, and the archive again if retention was faster.

    It gives every message from `start` on exactly once and in the stream's order. With `name`, the offset stored under
    it at the broker comes before `start`: reading goes on with the message after it. A gap in the archive that the
    broker cannot fill raises GapError; with `on_gap` "skip" it is added to `gaps`, and reading goes on after it.

    A logical name of which the archive has a map is read as one sharded stream: all partitions of all versions, and
    those that it grows by. `order` "key" keeps the messages of each key in order, "time" merges partitions by time and
    waits `merge_wait_s` at most for one that is idle, "arrival" takes what comes. `start` may be a ShardPosition, and
    `position` is one. With `super_stream` False nobody asks for a map. With True and without a map, `stream` is a super
    stream: its partitions, as they are when reading begins, are read as they arrive, each from the same `start`.

    With `group`, `stream` is a sharded stream, and this consumer reads the partitions that it owns in that group, each
    from where the group has committed, else from `start`; `assignment` names them. `store_offset` commits. A partition
    that another member gets ends here without a word, between two messages; committing one of its messages then raises
    NotOwnerError, and the other member gives it again. A partition is given back only once the caller comes for the
    next message. In the order of keys a partition waits until its parents are committed, by whomever.

    Use it as an asynchronous context manager, which ends everything it began, and iterate `messages`, `deliveries` or
    `chunks`. A loop may be left at any item; the next loop of its kind goes on with the item after it.

    A broker that is away is tried again for ever. The resolver may be away, and offsets may be neither at the broker
    nor archived, for `archive_wait_s`. Both are logged. Any error ends the consumer: GapError, IncarnationError if the
    stream was deleted and declared again, StreamNotFoundError, AccessDeniedError, UnavailableError, CorruptionError.

    Memory: out of the archive about `prefetch_bytes` and one range of `range_bytes` for each of `connections`, shared
    among partitions; live, ten chunks a stream. A slow caller stops the broker and takes no more memory.
    """

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End everything; takes less than a second, and in a group whose table does not answer 5 s."""
        await self._shut_down()

    async def messages(self) -> AsyncIterator[Message]:
        """Yield messages from the start offset on, or from the first chunk of the start time."""
        items = self._items
        items.begin("messages")
        while True:
            for message in items.messages:
                yield message
            # A timeout of the caller's may cancel this wait. The queue then keeps the batch, and the next loop gets it.
            items.load(await self._take())

    async def deliveries(self) -> AsyncIterator[MessageDelivery]:
        """Yield messages together with their streams. Loops over this and over `messages` may alternate."""
        items = self._items
        items.begin("messages")
        while True:
            for message in items.messages:
                yield MessageDelivery(items.stream, message, items.partition)
            items.load(await self._take())

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Yield user chunks. The first one holds the start offset, and may begin before it."""
        items = self._items
        items.begin("chunks")
        while True:
            for chunk in items.chunks:
                yield chunk
            items.load(await self._take())

    async def store_offset(self, done: int | Message | MessageDelivery, *, stream: str | None = None) -> None:
        """Store the offset of the last message handled at the broker, under the consumer's name; commit it in a group.

        In a super stream, pass what `deliveries` yielded, or name the partition by `stream`. Returns once the broker
        has the offset, which takes one round trip. Raises UnavailableError if the broker cannot be reached now,
        StreamNotFoundError, AccessDeniedError; in a group NotOwnerError if the partition is another member's by now.
        """
        await self._store_offset(done, stream)
