"""The publishers of one connection: messages are gathered for a moment, appended as one batch, confirmed when durable.

What is published and not confirmed is bounded, by connection and for the whole process: a connection that is over a
bound is not read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coldstream.errors import StreamClosedError
from coldstream.gateway.alone.appending import PublishAppends
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.direct_host import DirectHost
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.publish_answers import publish_confirm, publish_error
from coldstream.gateway.alone.publish_bounds import PublishBounds
from coldstream.gateway.alone.publish_budget import PublishBudget
from coldstream.gateway.alone.published import PublishedEntry, parse_publish
from coldstream.gateway.alone.publishers import DeclaredPublisher, DeclaringPublisher, cost_bytes
from coldstream.gateway.alone.refusals import AloneRefusalError
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import DeclarePublisher
from coldstream.streams.batch import MAX_BATCH_ENTRIES
from coldstream.streams.publishers import MAX_PUBLISHER_BYTES
from coldstream.units import MIB
from coldstream.web.access_tokens import Right

_GATHER_BYTES = MIB


class AlonePublishers:
    """The publishers of a connection, by their ids. `on_lost` is told a stream's name, once for each loss."""

    def __init__(
        self, peer: AlonePeer, host: DirectHost, budget: PublishBudget, on_lost: Callable[[str], None]
    ) -> None:
        self._peer = peer
        self._host = host
        self._bounds = PublishBounds(peer.link, budget, peer.options.max_pending_bytes)
        self._on_lost = on_lost
        self._by_id: dict[int, DeclaredPublisher] = {}
        self._declaring: dict[int, DeclaringPublisher] = {}
        # All that are, also those that were deleted since.
        self._openings: set[DeclaringPublisher] = set()
        self._appends = PublishAppends(host, self._bounds, self._confirm, self._refuse_batch)
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._by_id) + len(self._declaring)

    @property
    def is_pending(self) -> bool:
        """Tell whether anything is published that is neither confirmed nor refused."""
        return bool(self._bounds.pending_bytes)

    def reserve(self, asked: DeclarePublisher) -> DeclaringPublisher:
        """Take the id, so that a Publish and a DeletePublisher find it from here on. Raises AloneRefusalError."""
        publisher_id, reference, stream = asked.publisher_id, asked.reference or None, asked.stream
        if reference is not None and len(reference.encode()) > MAX_PUBLISHER_BYTES:
            raise AloneRefusalError(Code.PRECONDITION_FAILED, "a reference has 255 bytes at most")
        declared: tuple[DeclaredPublisher | DeclaringPublisher, ...]
        declared = (*self._by_id.values(), *self._declaring.values())
        for one in declared:
            if one.id == publisher_id:
                raise AloneRefusalError(Code.PRECONDITION_FAILED, f"publisher {publisher_id} is declared already")
            if reference is not None and (one.reference, one.stream) == (reference, stream):
                raise AloneRefusalError(Code.PRECONDITION_FAILED, f"the reference {reference!r} is declared already")
        declaring = self._declaring[publisher_id] = DeclaringPublisher(publisher_id, reference, stream)
        self._openings.add(declaring)
        return declaring

    async def declare(self, declaring: DeclaringPublisher) -> None:
        """Declare a publisher. Raises StreamNotFoundError, UnavailableError, StreamClosedError if it is sealed."""
        opened = await self._host.acquire(self._peer.vhost, declaring.stream)
        try:
            if opened.handle.is_sealed:
                raise StreamClosedError(str(opened.handle.stream), "is sealed")
            turn = await opened.turn_of(declaring.reference)
            if self._is_closed or opened.is_lost:
                raise StreamClosedError(str(opened.handle.stream), "was lost to another process")
        except BaseException:
            self._host.release(opened)
            raise
        turn.publishers += 1
        publisher = DeclaredPublisher(
            declaring.id,
            declaring.reference,
            opened,
            turn,
            self._peer.permissions.current,
            lambda: self._end_lost(declaring.stream),
        )
        kept, declaring.kept = declaring.kept, []
        self._openings.discard(declaring)
        if self._declaring.get(declaring.id) is not declaring:
            # Deleted meanwhile; what came before that is stored all the same.
            self._appends.append(publisher, kept)
            self._forget(publisher)
            return
        del self._declaring[declaring.id]
        opened.on_lost.add(publisher.tell_lost)
        self._by_id[declaring.id] = publisher
        self._appends.append(publisher, kept)

    def give_up(self, declaring: DeclaringPublisher) -> None:
        """End a publisher that could not be declared, and refuse what came for it. Of one that is declared: nothing."""
        if self._declaring.get(declaring.id) is declaring:
            del self._declaring[declaring.id]
        self._openings.discard(declaring)
        kept, declaring.kept = declaring.kept, []
        if kept:
            self._refuse(declaring.id, kept, Code.PUBLISHER_DOES_NOT_EXIST)
            self._bounds.give(cost_bytes(kept))

    async def sequence(self, reference: str, stream: str) -> int:
        """Return the greatest publishing id of a reference that is durable, 0 if there is none."""
        opened = await self._host.acquire(self._peer.vhost, stream)
        try:
            return await opened.handle.publisher_id(reference) or 0
        finally:
            self._host.release(opened)

    def delete(self, publisher_id: int) -> bool:
        """End a publisher; tell whether there was one. What it has published is still appended and confirmed."""
        if self._declaring.pop(publisher_id, None) is not None:
            return True
        publisher = self._by_id.pop(publisher_id, None)
        if publisher is None:
            return False
        self._appends.append(publisher, publisher.take_gathered())
        self._forget(publisher)
        return True

    def publish(self, body: FrameBody, version: int) -> None:
        """Take a Publish. Raises BadFrameError."""
        publisher_id, entries = parse_publish(body, version)
        declaring = self._declaring.get(publisher_id)
        publisher = self._by_id.get(publisher_id)
        if declaring is not None:
            declaring.kept += entries
        elif publisher is None:
            self._refuse(publisher_id, entries, Code.PUBLISHER_DOES_NOT_EXIST)
            return
        elif not self._may_still_write(publisher):
            self._refuse(publisher_id, entries, Code.ACCESS_REFUSED)
            return
        size_bytes = cost_bytes(entries)
        self._bounds.take(size_bytes)
        if publisher is not None:
            self._gather(publisher, entries, size_bytes)

    def end_stream(self, stream: str) -> None:
        """End the publishers of a stream of which the client is told that it is gone."""
        for publisher_id, publisher in tuple(self._by_id.items()):
            if publisher.stream == stream:
                self.delete(publisher_id)

    def close(self) -> None:
        """End all publishers. What was taken is still appended; nobody is told."""
        self._is_closed = True
        for declaring in tuple(self._openings):
            self.give_up(declaring)
        for publisher_id in tuple(self._by_id):
            self.delete(publisher_id)

    async def settled(self) -> None:
        """Wait until all that was taken is appended, or has failed."""
        for publisher in self._by_id.values():
            self._appends.append(publisher, publisher.take_gathered())
        await self._appends.settled()

    def _may_still_write(self, publisher: DeclaredPublisher) -> bool:
        current = self._peer.permissions.current
        if publisher.permitted is current:
            return True
        if not self._peer.may(Right.WRITE, publisher.stream):
            return False
        publisher.permitted = current
        return True

    # Appending, and what is said of it.

    def _gather(self, publisher: DeclaredPublisher, entries: list[PublishedEntry], size_bytes: int) -> None:
        if publisher.gathered and len(publisher.gathered) + len(entries) > MAX_BATCH_ENTRIES:
            self._append_gathered(publisher)
        publisher.gathered += entries
        publisher.gathered_bytes += size_bytes
        if publisher.gathered_bytes >= _GATHER_BYTES or len(publisher.gathered) >= MAX_BATCH_ENTRIES:
            self._append_gathered(publisher)
        elif publisher.timer is None and entries:
            loop = asyncio.get_running_loop()
            publisher.timer = loop.call_later(self._peer.options.gather_s, self._append_gathered, publisher)

    def _append_gathered(self, publisher: DeclaredPublisher) -> None:
        self._appends.append(publisher, publisher.take_gathered())

    def _confirm(self, publisher: DeclaredPublisher, entries: Sequence[PublishedEntry]) -> None:
        if self._is_told(publisher) and not self._is_closed:
            self._peer.send(publish_confirm(publisher.id, [one.publishing_id for one in entries]))

    def _refuse_batch(self, publisher: DeclaredPublisher, entries: Sequence[PublishedEntry]) -> None:
        if self._is_told(publisher):
            self._refuse(publisher.id, entries, Code.PRECONDITION_FAILED)

    def _is_told(self, publisher: DeclaredPublisher) -> bool:
        """Tell whether an answer to its id is its own: one that was declared since counts its messages anew."""
        now = self._by_id.get(publisher.id) or self._declaring.get(publisher.id)
        return now is None or now is publisher

    def _refuse(self, publisher_id: int, entries: Sequence[PublishedEntry], code: Code) -> None:
        if entries and not self._is_closed:
            self._peer.send(publish_error(publisher_id, [one.publishing_id for one in entries], code))

    # Losing.

    def _end_lost(self, stream: str) -> None:
        """End the publishers of a stream that this process has lost."""
        ended = [one for one in self._by_id.values() if one.stream == stream and one.opened.is_lost]
        for publisher in ended:
            del self._by_id[publisher.id]
            gathered = publisher.take_gathered()
            self._forget(publisher)
            self._bounds.give(cost_bytes(gathered))
        if ended:
            self._on_lost(stream)

    def _forget(self, publisher: DeclaredPublisher) -> None:
        opened, turn = publisher.opened, publisher.turn
        opened.on_lost.discard(publisher.tell_lost)
        self._host.release(opened)
        turn.publishers -= 1
        opened.drop_idle(publisher.reference, turn)
