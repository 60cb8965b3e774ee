"""The subscriptions of one connection, by their ids, and whose turn it is of those that are single active consumers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from coldstream.errors import ColdstreamError
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.questions import AloneQuestions
from coldstream.gateway.alone.reading import AloneSubscription
from coldstream.gateway.alone.refusals import AloneRefusalError
from coldstream.gateway.alone.turn_seat import TurnSeat
from coldstream.gateway.alone.turns import TurnName
from coldstream.gateway.frames.answers import ConsumerUpdate, CreditAnswer, plain_answer
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Credit, Subscribe, Unsubscribe
from coldstream.manifest.spec import NEXT
from coldstream.web.access_tokens import Right

_LOG = logging.getLogger(__name__)
_SINGLE_ACTIVE, _NAME, _SUPER_STREAM = "single-active-consumer", "name", "super-stream"
_MAX_NAME_BYTES = 255


@dataclass(slots=True, eq=False)
class HeldSubscription:
    """A subscription; while it is just being made there is nothing of it but its id and its credit.

    `turns` is how often it was told that its turn has come, or is over.
    """

    id: int
    credit: int
    subscription: AloneSubscription | None = None
    seat: TurnSeat | None = None
    turns: int = 0
    is_over: bool = False


class AloneConsumers:
    """The subscriptions. `on_end` is told the stream of one that ended by itself."""

    def __init__(
        self, parts: AloneParts, peer: AlonePeer, questions: AloneQuestions, on_end: Callable[[str], None]
    ) -> None:
        self._parts = parts
        self._peer = peer
        self._questions = questions
        self._on_end = on_end
        self._turn = asyncio.Lock()
        self._by_id: dict[int, HeldSubscription] = {}
        self._correlation_ids = itertools.count(1)
        self._updates: dict[int, asyncio.Future[ConsumerUpdateAnswer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def streams(self) -> frozenset[str]:
        """The streams of the subscriptions."""
        held = self._by_id.values()
        return frozenset(one.subscription.stream.name for one in held if one.subscription is not None)

    def reserve(self, asked: Subscribe) -> HeldSubscription:
        """Take the id, so that an Unsubscribe and a Credit find it from here on. Raises AloneRefusalError."""
        self._questions.check(Right.READ, asked.stream)
        self._turn_name(asked)
        if asked.subscription_id in self._by_id:
            raise AloneRefusalError(Code.SUBSCRIPTION_EXISTS, f"there is a subscription {asked.subscription_id}")
        held = self._by_id[asked.subscription_id] = HeldSubscription(asked.subscription_id, asked.credit)
        return held

    async def subscribe(self, asked: Subscribe, held: HeldSubscription) -> None:
        """Subscribe, and answer. Raises what `code_of` knows."""
        turn_name = self._turn_name(asked)
        try:
            stream = await self._questions.existing(asked.stream)
            place = None
            if turn_name is not None and _SUPER_STREAM in asked.properties:
                super_stream = asked.properties[_SUPER_STREAM]
                place = await self._parts.super_streams.place_of(self._peer.vhost, super_stream, asked.stream)
            if held.is_over:
                raise AloneRefusalError(Code.STREAM_NOT_AVAILABLE, "unsubscribed before it was subscribed")
        except BaseException:
            self._forget(held)
            raise
        made = AloneSubscription(
            self._peer,
            self._turn,
            subscription_id=held.id,
            stream=stream,
            spec=asked.spec or NEXT,
            credit=held.credit,
            on_end=lambda _, err: self._ended(held, err),
        )
        held.subscription = made
        self._peer.send(plain_answer(Key.SUBSCRIBE, asked.correlation_id, Code.OK))
        if turn_name is None:
            made.start(made.spec)
            return
        seat = self._parts.turns.join(
            turn_name, place, lambda: self._spawn_activation(held), lambda: self._deactivate(held)
        )
        held.seat = seat
        made.may_send = lambda: self._parts.turns.may_send(seat)

    def credit(self, body: FrameBody) -> None:
        """Take credit; answered only if there is no such subscription."""
        asked = Credit.from_body(body)
        held = self._by_id.get(asked.subscription_id)
        if held is None:
            self._peer.send(CreditAnswer(Code.SUBSCRIPTION_DOES_NOT_EXIST, asked.subscription_id).to_bytes())
        elif held.subscription is None:
            held.credit += asked.credit
        else:
            held.subscription.add_credit(asked.credit)

    def unsubscribe(self, body: FrameBody) -> None:
        """End a subscription, and answer."""
        asked = Unsubscribe.from_body(body)
        held = self._by_id.get(asked.subscription_id)
        code = Code.SUBSCRIPTION_DOES_NOT_EXIST if held is None else Code.OK
        if held is not None:
            self._forget(held)
        self._peer.send(plain_answer(Key.UNSUBSCRIBE, asked.correlation_id, code))

    def updated(self, body: FrameBody) -> None:
        """Take the answer to a ConsumerUpdate; one that nobody waits for is nothing."""
        answer = ConsumerUpdateAnswer.from_body(body)
        waiting = self._updates.pop(answer.correlation_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end_stream(self, stream: str) -> None:
        """End the subscriptions to a stream: the client is told that it is gone."""
        for held in tuple(self._by_id.values()):
            if held.subscription is not None and held.subscription.stream.name == stream:
                self._forget(held)

    def close(self) -> None:
        """End all."""
        for held in tuple(self._by_id.values()):
            self._forget(held)
        for waiting in self._updates.values():
            waiting.cancel()
        for task in tuple(self._tasks):
            task.cancel()

    def _turn_name(self, asked: Subscribe) -> TurnName | None:
        """Return the name under which it is single active, None if it is not. Raises AloneRefusalError."""
        if asked.properties.get(_SINGLE_ACTIVE) != "true":
            return None
        name = asked.properties.get(_NAME, "")
        if not 1 <= len(name.encode()) <= _MAX_NAME_BYTES:
            raise AloneRefusalError(Code.PRECONDITION_FAILED, "a single active consumer has a name of 1 to 255 bytes")
        return TurnName(self._peer.vhost, asked.stream, name)

    def _forget(self, held: HeldSubscription) -> None:
        held.is_over = True
        if self._by_id.get(held.id) is held:
            del self._by_id[held.id]
        if held.subscription is not None:
            held.subscription.stop()
        if held.seat is not None:
            self._parts.turns.leave(held.seat)
            held.seat = None

    def _ended(self, held: HeldSubscription, err: ColdstreamError) -> None:
        assert held.subscription is not None
        stream = held.subscription.stream.name
        _LOG.error(
            "ended a subscription",
            extra={"stream": stream, "subscription": held.id, "user": self._peer.user, "error": str(err)},
        )
        self._forget(held)
        self._on_end(stream)

    # Turns.

    def _spawn_activation(self, held: HeldSubscription) -> None:
        task = asyncio.create_task(self._activate(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _activate(self, held: HeldSubscription) -> None:
        """Tell the client that its turn has come, and serve from where it says."""
        seat, subscription = held.seat, held.subscription
        held.turns += 1
        turn = held.turns
        answer = await self._tell(held, is_active=True)
        if answer is None or subscription is None or seat is None:
            return
        # Meanwhile it may be over again, or begun anew: then others have read on from where this answer says.
        if not held.is_over and seat.is_active and held.turns == turn:
            subscription.start(subscription.spec if answer.spec is None else answer.spec)

    async def _deactivate(self, held: HeldSubscription) -> None:
        """Stop, tell the client, and return once it has answered, or is gone."""
        held.turns += 1
        if held.subscription is not None:
            held.subscription.stop()
        await self._tell(held, is_active=False)

    async def _tell(self, held: HeldSubscription, *, is_active: bool) -> ConsumerUpdateAnswer | None:
        if held.is_over:
            return None
        correlation_id = next(self._correlation_ids)
        waiting = self._updates[correlation_id] = asyncio.get_running_loop().create_future()
        self._peer.send(ConsumerUpdate(correlation_id, held.id, int(is_active)).to_bytes())
        try:
            async with asyncio.timeout(self._peer.options.answer_s):
                answer: ConsumerUpdateAnswer = await waiting
                return answer
        except TimeoutError:
            self._peer.link.close(Code.INTERNAL_ERROR, "a ConsumerUpdate was not answered")
            return None
        except asyncio.CancelledError:
            if waiting.cancelled():
                return None  # the connection is over
            raise
        finally:
            self._updates.pop(correlation_id, None)
