"""Subscriptions: the chunks of a stream in order, as fast as they are asked for.

A broker sends one chunk for each credit that it has. A chunk's credit goes back when the next chunk is asked for. So at
most as many chunks wait here as credits were given at first, and a consumer that stops asking stops the broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from rstream import schema
from rstream.constants import OffsetType

from coldstream.errors import BadSequenceError, ColdstreamError, CorruptionError, UnavailableError
from coldstream.format.chunk import Chunk
from coldstream.live import refusals
from coldstream.live.delivered import chunk_of
from coldstream.live.wire import REQUEST_TIMEOUT_S, Wire, WireText
from coldstream.manifest.spec import AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset

MAX_SUBSCRIPTIONS = 256
"""Of one connection: ids have eight bits."""

_EVERY_CHUNK = schema.Property("chunk_selector", "all")
"""Asks for chunks of every type, and for trailers (rabbit_stream_reader:get_chunk_selector/1)."""

Place = tuple[str, int]
"""A host and a port."""

_ENDS = {"first": OffsetType.FIRST, "last": OffsetType.LAST, "next": OffsetType.NEXT}


class Subscriptions:
    """The subscriptions of a connection, by their ids; implements `Receiver`."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._free = deque(range(MAX_SUBSCRIPTIONS))  # first in, first out: an id rests as long as possible
        self._freed = asyncio.Condition()
        self._open: dict[int, Subscription] = {}

    async def add(self, subscription: Subscription) -> int:
        """Give a subscription an id, and wait for a free one if need be. Raises UnavailableError."""
        async with self._freed:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await self._freed.wait_for(lambda: bool(self._free))
            except TimeoutError as err:
                raise UnavailableError(f"all {MAX_SUBSCRIPTIONS} subscriptions of the connection are in use") from err
            number = self._free.popleft()
        self._open[number] = subscription
        return number

    async def remove(self, number: int) -> None:
        """End a subscription here at once, and at the broker, even if the caller is cancelled meanwhile.

        Else a subscription whose consumer was cancelled would keep its id, and the broker would go on sending to it.
        """
        del self._open[number]
        await asyncio.shield(self.wire.start(self._unsubscribe(number)))

    async def members(self, stream: str) -> tuple[Place | None, ...]:
        """Return what each node that has a replica calls itself, None for one that is away; the leader's first.

        Raises UnavailableError, StreamNotFoundError.
        """
        answer = await self._metadata(stream)
        places = {broker.reference: (broker.host, broker.port) for broker in answer.brokers}
        return tuple(
            places.get(reference)
            for found in answer.metadata
            if found.name == stream
            for reference in (found.leader_ref, *found.replicas_refs)
        )

    async def leader(self, stream: str) -> Place:
        """Return what the leader's node calls itself. Raises UnavailableError, StreamNotFoundError."""
        place = next(iter(await self.members(stream)), None)
        if place is None:
            raise UnavailableError(f"stream {stream!r} has no leader now")
        return place

    async def _metadata(self, stream: str) -> schema.MetadataResponse:
        answer = await self.wire.request(
            lambda correlation_id: schema.Metadata(correlation_id, streams=[WireText(stream)]), schema.MetadataResponse
        )
        for found in answer.metadata:
            if found.name == stream and found.response_code != refusals.OK:
                raise refusals.refusal(found.response_code, f"stream {stream!r}")
        return answer

    def delivered(self, subscription_id: int, chunk: memoryview) -> None:
        """Pass a chunk on. Chunks that were on their way when their subscription ended are dropped."""
        if (subscription := self._open.get(subscription_id)) is not None:
            subscription.take(chunk)

    def stream_gone(self, stream: str) -> None:
        """End the subscriptions to a stream, after the chunks that have arrived."""
        for subscription in self._open.values():
            if subscription.stream == stream:
                subscription.end(None)

    def lost(self, error: UnavailableError) -> None:
        """End every subscription, after the chunks that have arrived."""
        for subscription in self._open.values():
            subscription.end(error)

    async def _unsubscribe(self, number: int) -> None:
        # The id is free only after the broker has answered. Before, chunks of the old subscription may still come, and
        # would be taken for those of the next one with that id.
        try:
            answer = await self.wire.request(
                lambda correlation_id: schema.Unsubscribe(correlation_id, subscription_id=number),
                schema.UnsubscribeResponse,
            )
        except UnavailableError as err:
            # The broker may still send under this id, so it cannot be given to another. A connection that leaks its ids
            # ends up without any; one that is lost is opened again.
            self.wire.fail("a subscription does not end", err)
            return
        if answer.response_code not in (refusals.OK, refusals.NO_SUCH_SUBSCRIPTION):
            self.wire.fail(f"a subscription does not end, response code {answer.response_code}")
            return
        async with self._freed:
            self._free.append(number)
            self._freed.notify()


class Subscription:
    """An asynchronous context manager, and an iterator of chunks from `spec` on; for one task at a time.

    The first chunk is whole: the one with the offset, or the first for the spec. The caller drops messages before the
    offset. Ids of chunks rise, and leave out the offsets of tracking chunks. With `every_chunk`, brokers deliver those
    too, and trailers. All since 3.9 do, though it is undocumented; one that does not know it delivers what it always
    does.

    Entering raises StreamNotFoundError, AccessDeniedError, UnavailableError. After the chunks that have arrived, asking
    for the next one raises UnavailableError if the connection or the stream's member here is lost, StreamNotFoundError
    if the stream was deleted, and CorruptionError if a chunk is damaged. That ends the subscription.
    """

    def __init__(
        self, subscriptions: Subscriptions, stream: str, spec: OffsetSpec, credits_: int, *, every_chunk: bool = False
    ) -> None:
        self.stream = stream
        self._subscriptions = subscriptions
        self._spec = spec
        self._credits = credits_
        self._properties = [_EVERY_CHUNK] if every_chunk else []
        self._number: int | None = None
        self._arrived: asyncio.Queue[Chunk | ColdstreamError | None] = asyncio.Queue()
        self._owes_credit = False
        self._ended = False  # no chunk is taken any more, though some may wait
        self._error: ColdstreamError | None = None  # set once the chunks that waited were all given out
        self._next_offset = Offset(0)

    async def __aenter__(self) -> Self:
        number = self._number = await self._subscriptions.add(self)
        try:
            answer = await self._subscriptions.wire.request(
                lambda correlation_id: schema.Subscribe(
                    correlation_id,
                    subscription_id=number,
                    stream=WireText(self.stream),
                    offset_spec=_encoded(self._spec),
                    credit=self._credits,
                    properties=self._properties,
                ),
                schema.SubscribeResponse,
            )
            refusals.check(answer.response_code, f"subscription to {self.stream!r}")
        except BaseException:
            # Also after a timeout or a cancellation: the broker may have begun the subscription all the same.
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave()

    def __aiter__(self) -> Self:
        return self

    @property
    def waiting(self) -> int:
        """The number of chunks that can be had without waiting; an error counts as one."""
        return self._arrived.qsize()

    @property
    def next_offset(self) -> Offset:
        """The offset after the last chunk that has arrived, asked for or not; 0 before the first."""
        return self._next_offset

    @property
    def is_over(self) -> bool:
        """Whether no chunk arrives any more, though some may wait."""
        return self._ended

    async def __anext__(self) -> Chunk:
        if self._error is not None:
            raise self._error
        # Credit is given for the chunk before, as the caller is done with it only now. Given at once, it would let
        # chunks pile up here as fast as the broker sends.
        if self._owes_credit:
            self._owes_credit = False  # before the await: if that is cancelled, the credit must not be given twice
            await self._give_credit()
        item = await self._arrived.get()
        if isinstance(item, Chunk):
            self._owes_credit = True
            return item
        if item is None:
            self._arrived.put_nowait(None)  # to be found again if the next line is cancelled
            item = await self._why_gone()
        self._error = item
        raise self._error

    def take(self, delivered: memoryview) -> None:
        """Check a delivered chunk, and queue it."""
        if self._ended:
            return
        source = f"stream {self.stream!r} as delivered"
        try:
            chunk = chunk_of(delivered, source=source)
            if chunk.header.chunk_id < self._next_offset:
                raise BadSequenceError(
                    source, 0, "chunk id", expected=f"at least {self._next_offset}", found=chunk.header.chunk_id
                )
        except CorruptionError as err:
            # Queued, not raised: the reader of the connection calls this, and one bad chunk would end every
            # subscription.
            self.end(err)
            return
        # Memory is bounded by the credits, so a broker that does not keep to them has to be stopped.
        if self._arrived.qsize() >= self._credits:
            self.end(UnavailableError(f"{source}: the broker sends more chunks than it has credits for"))
            return
        self._next_offset = chunk.header.next_offset
        self._arrived.put_nowait(chunk)

    def end(self, error: ColdstreamError | None) -> None:
        """End after the chunks that have arrived, with `error`; None if the broker ended it, and is to be asked why."""
        if not self._ended:
            self._ended = True
            self._arrived.put_nowait(error)

    async def _give_credit(self) -> None:
        if not self._ended:
            assert self._number is not None
            try:
                await self._subscriptions.wire.send(schema.Credit(subscription_id=self._number, credit=1))
            except UnavailableError:
                return  # chunks that have arrived come first; the same error is queued after them

    async def _why_gone(self) -> ColdstreamError:
        try:
            await self._subscriptions.members(self.stream)
        except ColdstreamError as err:
            return err
        return UnavailableError(f"stream {self.stream!r} has changed its members")

    async def _leave(self) -> None:
        self._ended = True
        # Whoever asks for another chunk after this would otherwise wait for ever: nothing is queued any more.
        self._error = self._error or UnavailableError(f"the subscription to {self.stream!r} has ended")
        if self._number is not None:
            # Taken before the await: a second call would otherwise end the subscription that has got the id since.
            number, self._number = self._number, None
            await self._subscriptions.remove(number)


def _encoded(spec: OffsetSpec) -> schema.OffsetSpec:
    match spec:
        case AtOffset(offset):
            return schema.OffsetSpecOffset(OffsetType.OFFSET, offset)
        case AtTimestamp(timestamp):
            return schema.OffsetSpecTimestamp(OffsetType.TIMESTAMP, timestamp)
        case _:
            return schema.OffsetSpec(_ENDS[spec.which])
