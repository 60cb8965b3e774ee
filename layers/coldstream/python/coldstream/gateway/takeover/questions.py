"""What the broker has of a stream, asked by the client's own connection, so with the client's own rights.

Brokers since 3.11 tell the first chunk of a stream. Those before are asked by a subscription: from `first`, with one
credit, to chunks of every type, which is ended in the same breath. A broker sends what a credit is good for before it
answers the request that follows. So when the end is confirmed, the chunk has been seen, or there is none; no clock is
needed. Upstream: rabbit_stream_reader.erl (handle_frame_post_auth: subscribe, unsubscribe, stream_stats).
"""

from __future__ import annotations

import asyncio

from coldstream.errors import UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.gateway.frames.answers import StreamStatsAnswer, SubscribeAnswer, UnsubscribeAnswer
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import StreamStats, Subscribe, Unsubscribe
from coldstream.gateway.ports import BrokerLink, Verdict
from coldstream.gateway.takeover.ids import IdLender, ReservedId, SubscriptionIds
from coldstream.live import refusals
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.units import Offset

EVERY_CHUNK = ("chunk_selector", "all")
"""The property of a subscription to chunks of all types (rabbit_stream_reader:get_chunk_selector/1)."""


class ChunkQuestion(ReservedId):
    """The id of a subscription that asks for the header of one chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.head: bytes | None = None
        self.version = 0

    def deliver(self, version: int, head: memoryview) -> Verdict:
        """Note the first chunk's header."""
        if self.head is None:
            self.head, self.version = bytes(head), version
        return Verdict.DROP


class BrokerQuestions:
    """Asks the broker. `deliver_version` is that of the connection, which the first question shows."""

    def __init__(self, link: BrokerLink, ids: SubscriptionIds) -> None:
        self.deliver_version = 1
        self._link = link
        self._ids = ids
        self._under_way: set[asyncio.Task[ChunkHeader | None]] = set()

    @property
    def has_id(self) -> bool:
        """Tell whether an id is left for a question."""
        return self._ids.spare() is not None or bool(self._ids.lenders)

    @property
    def tells_first_offset(self) -> bool:
        """Tell whether the broker has a request for that, so that it needs no subscription."""
        return self._link.supports(Key.STREAM_STATS)

    async def first_offset(self, stream: str) -> Offset | None:
        """Return the first offset that the broker has, of a chunk of any type; None if it has no chunk.

        If it is at or before some offset, nothing after that offset was deleted when the broker answered. Raises
        UnavailableError, BrokerRefusedError and StreamNotFoundError.
        """
        if not self.tells_first_offset:
            header = await self.header(stream, FIRST)
            return None if header is None else Offset(header.chunk_id)
        answer = await self._link.request(lambda number: StreamStats(number, stream), StreamStatsAnswer)
        if not isinstance(answer, StreamStatsAnswer):
            raise refusals.refusal(answer.code, f"the figures of stream {stream!r}")
        first = dict(answer.figures).get("first_chunk_id", -1)
        return None if first < 0 else Offset(first)

    async def header(self, stream: str, spec: OffsetSpec) -> ChunkHeader | None:
        """Return the header of the first chunk, of any type, from a spec on; None if there is none yet.

        Raises as `first_offset`, and UnavailableError if the client uses all 256 ids.
        """
        question = ChunkQuestion()
        while (taken := self._ids.take(question)) is None:
            if not self._under_way:
                raise UnavailableError("the client uses all subscription ids: none is left for a question")
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        # A task of its own: if the caller is cancelled, the id still has to be freed once the subscription has ended.
        task = asyncio.ensure_future(self._ask(taken, question, stream, spec))
        self._under_way.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def close(self) -> None:
        """End all questions."""
        for task in self._under_way:
            task.cancel()

    def _forget(self, task: asyncio.Task[ChunkHeader | None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # seen here, in case that whoever asked is gone

    async def _ask(
        self, taken: tuple[int, IdLender | None], question: ChunkQuestion, stream: str, spec: OffsetSpec
    ) -> ChunkHeader | None:
        number, lender = taken
        properties = dict([EVERY_CHUNK])
        begun, ended = await asyncio.gather(
            self._link.request(lambda one: Subscribe(one, number, stream, spec, 1, properties), SubscribeAnswer),
            self._link.request(lambda one: Unsubscribe(one, number), UnsubscribeAnswer),
            return_exceptions=True,
        )
        for answer in (ended, begun):
            if isinstance(answer, BaseException):
                self._ids.lose(number)  # without an answer the subscription may be there
                raise answer
        assert not isinstance(begun, BaseException)
        self._ids.give_back(number, lender, question)
        if begun.code != Code.OK:
            raise refusals.refusal(begun.code, f"a subscription to {stream!r}")
        if question.head is None:
            return None
        self.deliver_version = question.version
        return ChunkHeader.from_bytes(question.head, source=f"stream {stream!r} as delivered", position=0)
