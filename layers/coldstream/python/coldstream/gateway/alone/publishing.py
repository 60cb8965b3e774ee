"""The publishers of one connection: messages are gathered for a moment, appended as one batch, confirmed when durable.

What is published and not confirmed is bounded, by connection and for the whole process: a connection that is over a
bound is not read from.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from coldstream.errors import ColdstreamError, InvalidInputError, StreamClosedError
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.direct_host import DirectHost, OpenDirect
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.published import PublishedEntry, parse_publish
from coldstream.gateway.alone.publisher_turn import PublisherTurn
from coldstream.gateway.frames.keys import Code, Key
from coldstream.streams import Batch
from coldstream.streams.batch import MAX_BATCH_ENTRIES
from coldstream.units import MIB, Offset

_LOG = logging.getLogger(__name__)
_ANSWER_HEAD = struct.Struct(">IHHBi")  # length, key, version, publisher id, count
_REFUSED = struct.Struct(">QH")  # publishing id, code
_GATHER_BYTES = MIB
_ENTRY_COST_BYTES = 100
"""What an entry costs in memory beside its bytes, roughly."""


class PublishBudget:
    """What all connections of a process have published that is not confirmed.

    At the bound, none that publishes is read from until there is room.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        """Tell whether nothing more fits."""
        return self._used_bytes >= self._total_bytes

    def take(self, size_bytes: int) -> None:
        """Count bytes, also over the bound: they are there already."""
        self._used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Count them no more."""
        self._used_bytes -= size_bytes
        if self._waiting and self._used_bytes < self._total_bytes * 3 // 4:
            waiting, self._waiting = self._waiting, []
            for tell in waiting:
                tell()

    def when_free(self, tell: Callable[[], None]) -> None:
        """Have something called once when there is room."""
        self._waiting.append(tell)


@dataclass(slots=True, eq=False)
class DeclaredPublisher:
    """A publisher: where its messages go, and those that are gathered."""

    id: int
    reference: str | None
    opened: OpenDirect
    turn: PublisherTurn
    tell_lost: Callable[[], None]
    gathered: list[PublishedEntry] = field(default_factory=list)
    gathered_bytes: int = 0
    timer: asyncio.TimerHandle | None = None


class AlonePublishers:
    """The publishers of a connection, by their ids. `on_lost` is told a stream's name, once for each loss."""

    def __init__(
        self, peer: AlonePeer, host: DirectHost, budget: PublishBudget, on_lost: Callable[[str], None]
    ) -> None:
        self._peer = peer
        self._host = host
        self._budget = budget
        self._on_lost = on_lost
        self._by_id: dict[int, DeclaredPublisher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending_bytes = 0
        self._is_paused = self._is_waiting = self._is_closed = False

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def is_pending(self) -> bool:
        """Tell whether anything is published that is neither confirmed nor refused."""
        return bool(self._pending_bytes)

    def has(self, publisher_id: int) -> bool:
        """Tell whether a publisher has an id."""
        return publisher_id in self._by_id

    def has_reference(self, reference: str, stream: str) -> bool:
        """Tell whether a publisher of this connection has a reference at a stream."""
        return any(one.reference == reference and one.opened.names[1] == stream for one in self._by_id.values())

    async def declare(self, publisher_id: int, reference: str | None, stream: str) -> None:
        """Declare a publisher. Raises StreamNotFoundError, UnavailableError, StreamClosedError if it is sealed."""
        opened = await self._host.acquire(self._peer.vhost, stream)
        try:
            if opened.handle.is_sealed:
                raise StreamClosedError(str(opened.handle.stream), "is sealed")
            turn = PublisherTurn()
            if reference:
                turn = await _turn_of(opened, reference)
        except BaseException:
            self._host.release(opened)
            raise
        if self._is_closed or opened.is_lost:
            self._host.release(opened)
            raise StreamClosedError(str(opened.handle.stream), "was lost to another process")
        turn.publishers += 1

        def tell_lost() -> None:
            self._end_stream(stream)

        publisher = DeclaredPublisher(publisher_id, reference or None, opened, turn, tell_lost)
        opened.on_lost.add(tell_lost)
        self._by_id[publisher_id] = publisher

    async def sequence(self, reference: str, stream: str) -> int:
        """Return the greatest publishing id of a reference that is durable, 0 if there is none."""
        opened = await self._host.acquire(self._peer.vhost, stream)
        try:
            return await opened.handle.publisher_id(reference) or 0
        finally:
            self._host.release(opened)

    def delete(self, publisher_id: int) -> bool:
        """End a publisher; tell whether there was one. What it has published is still appended and confirmed."""
        publisher = self._by_id.pop(publisher_id, None)
        if publisher is None:
            return False
        self._append_gathered(publisher)
        self._forget(publisher)
        return True

    def publish(self, body: FrameBody, version: int) -> None:
        """Take a Publish. Raises BadFrameError."""
        publisher_id, entries = parse_publish(body, version)
        publisher = self._by_id.get(publisher_id)
        if publisher is None:
            self._refuse(publisher_id, [one.publishing_id for one in entries], Code.PUBLISHER_DOES_NOT_EXIST)
            return
        size_bytes = _cost(entries)
        self._pending_bytes += size_bytes
        self._budget.take(size_bytes)
        if publisher.gathered and len(publisher.gathered) + len(entries) > MAX_BATCH_ENTRIES:
            self._append_gathered(publisher)
        publisher.gathered += entries
        publisher.gathered_bytes += size_bytes
        if publisher.gathered_bytes >= _GATHER_BYTES or len(publisher.gathered) >= MAX_BATCH_ENTRIES:
            self._append_gathered(publisher)
        elif publisher.timer is None and entries:
            loop = asyncio.get_running_loop()
            publisher.timer = loop.call_later(self._peer.options.gather_s, self._append_gathered, publisher)
        self._hold_back()

    def close(self) -> None:
        """End all publishers. What was taken is still appended; nobody is told."""
        self._is_closed = True
        for publisher_id in tuple(self._by_id):
            self.delete(publisher_id)

    async def settled(self) -> None:
        """Wait until all that was taken is appended, or has failed."""
        for publisher in self._by_id.values():
            self._append_gathered(publisher)
        while self._tasks:
            await asyncio.wait(self._tasks)

    # Appending.

    def _append_gathered(self, publisher: DeclaredPublisher) -> None:
        if publisher.timer is not None:
            publisher.timer.cancel()
            publisher.timer = None
        entries, publisher.gathered, publisher.gathered_bytes = publisher.gathered, [], 0
        while entries:
            # A frame of Publish may hold more than a batch takes.
            part, entries = entries[:MAX_BATCH_ENTRIES], entries[MAX_BATCH_ENTRIES:]
            self._append(publisher, part)

    def _append(self, publisher: DeclaredPublisher, entries: list[PublishedEntry]) -> None:
        # Which of them are new is decided here, in the order in which they came; nothing is awaited before the append.
        turn, handle, reference = publisher.turn, publisher.opened.handle, publisher.reference
        new = entries if reference is None else turn.take_new(entries)
        batch = _batch_of(new)
        appending = turn.appending if reference is not None else None
        if batch is not None:
            last = new[-1].publishing_id if reference is not None else None
            appending = asyncio.create_task(handle.append(batch, publisher=reference, publishing_id=last))
            if reference is not None:
                turn.appending = appending
        task = asyncio.create_task(self._confirm(publisher, entries, appending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _confirm(
        self, publisher: DeclaredPublisher, entries: list[PublishedEntry], appending: asyncio.Task[Offset | None] | None
    ) -> None:
        """Confirm entries once the batch is durable that has the last of them."""
        opened = publisher.opened
        try:
            if appending is not None:
                await asyncio.shield(appending)
        except InvalidInputError as err:
            _LOG.warning("refused a batch", extra={"stream": opened.names[1], "error": str(err)})
            self._refuse(publisher.id, [one.publishing_id for one in entries], Code.PRECONDITION_FAILED)
        except ColdstreamError as err:
            # As when a broker's leader is gone: whether it is stored is unknown, and the client is told that the stream
            # has moved. Who publishes with a name sends it again, once.
            self._host.lose(opened, err)
        else:
            opened.announce()
            self._acknowledge(publisher.id, [one.publishing_id for one in entries])
        finally:
            if publisher.turn.appending is appending and appending is not None and appending.done():
                publisher.turn.appending = None
                _drop_idle_turn(publisher)
            size_bytes = _cost(entries)
            self._pending_bytes -= size_bytes
            self._budget.give(size_bytes)
            self._go_on()

    def _acknowledge(self, publisher_id: int, ids: Sequence[int]) -> None:
        if not self._is_closed:
            body = struct.pack(f">{len(ids)}Q", *ids)
            length_bytes = _ANSWER_HEAD.size - 4 + len(body)
            head = _ANSWER_HEAD.pack(length_bytes, Key.PUBLISH_CONFIRM, 1, publisher_id, len(ids))
            self._peer.send(head + body)

    def _refuse(self, publisher_id: int, ids: Sequence[int], code: Code) -> None:
        if not self._is_closed and ids:
            body = b"".join(_REFUSED.pack(one, code) for one in ids)
            length_bytes = _ANSWER_HEAD.size - 4 + len(body)
            head = _ANSWER_HEAD.pack(length_bytes, Key.PUBLISH_ERROR, 1, publisher_id, len(ids))
            self._peer.send(head + body)

    # Losing.

    def _end_stream(self, stream: str) -> None:
        """End the publishers of a stream that this process has lost."""
        ended = [one for one in self._by_id.values() if one.opened.names[1] == stream and one.opened.is_lost]
        for publisher in ended:
            del self._by_id[publisher.id]
            if publisher.timer is not None:
                publisher.timer.cancel()
                publisher.timer = None
            size_bytes = _cost(publisher.gathered)
            publisher.gathered = []
            self._pending_bytes -= size_bytes
            self._budget.give(size_bytes)
            self._forget(publisher)
        if ended:
            self._on_lost(stream)
            self._go_on()

    def _forget(self, publisher: DeclaredPublisher) -> None:
        opened, turn = publisher.opened, publisher.turn
        opened.on_lost.discard(publisher.tell_lost)
        self._host.release(opened)
        turn.publishers -= 1
        _drop_idle_turn(publisher)

    # Holding back.

    def _hold_back(self) -> None:
        if self._budget.is_full and not self._is_waiting:
            self._is_waiting = True
            self._budget.when_free(self._freed)
        if not self._is_paused and (self._is_waiting or self._pending_bytes >= self._peer.options.max_pending_bytes):
            self._is_paused = True
            self._peer.link.pause()

    def _freed(self) -> None:
        self._is_waiting = False
        self._go_on()

    def _go_on(self) -> None:
        if self._is_paused and not self._is_waiting and self._pending_bytes < self._peer.options.max_pending_bytes // 2:
            self._is_paused = False
            self._peer.link.resume()


def _drop_idle_turn(publisher: DeclaredPublisher) -> None:
    """Forget a reference that nobody has: the stream knows it, and others may come with ever new ones."""
    turns, turn = publisher.opened.turns, publisher.turn
    is_idle = not turn.publishers and turn.appending is None
    if publisher.reference is not None and is_idle and turns.get(publisher.reference) is turn:
        del turns[publisher.reference]


async def _turn_of(opened: OpenDirect, reference: str) -> PublisherTurn:
    known = opened.turns.get(reference)
    if known is None:
        last = await opened.handle.publisher_id(reference)
        # Another may have asked meanwhile, and published since.
        known = opened.turns.setdefault(reference, PublisherTurn(last))
    return known


def _batch_of(entries: Sequence[PublishedEntry]) -> Batch | None:
    """Return a batch of entries, None if they hold no message. A sub-batch of nothing would take no offset."""
    full = [one for one in entries if one.records]
    if not full:
        return None
    data = b"".join(one.data for one in full)
    return Batch(data, len(full), sum(one.records for one in full), crc32(data))


def _cost(entries: Sequence[PublishedEntry]) -> int:
    return sum(len(one.data) + _ENTRY_COST_BYTES for one in entries)
