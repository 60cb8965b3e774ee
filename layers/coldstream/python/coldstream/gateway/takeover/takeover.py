"""The subscriptions of one connection, between client and broker: `Takeover`, an `Interceptor`."""

from __future__ import annotations

import asyncio
import logging
import struct

from coldstream.errors import BadFrameError, ClosedLinkError, ColdstreamError, UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.answers import (
    CodeAnswer,
    ConsumerUpdate,
    CreditAnswer,
    MetadataUpdate,
    UnsubscribeAnswer,
    plain_answer,
)
from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer, Subscribe, Unsubscribe
from coldstream.gateway.history.port import History
from coldstream.gateway.ports import BrokerLink, ClientLink, MakeInterceptor, Verdict
from coldstream.gateway.takeover.ids import ReservedId, SubscriptionIds, TransparentId
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.parts import TakeoverParts
from coldstream.gateway.takeover.plan import Planner
from coldstream.gateway.takeover.questions import EVERY_CHUNK, BrokerQuestions, ChunkQuestion
from coldstream.gateway.takeover.side_answers import QUESTIONS, SideAnswers
from coldstream.gateway.takeover.subscription import FollowedSubscription, SubscriptionStage

log = logging.getLogger(__name__)

_CREDIT = struct.Struct(">8xBH")  # subscription id, credit
_CREDIT_BYTES = 11
assert _CREDIT.size == _CREDIT_BYTES


class Takeover:
    """Implements `Interceptor`. Its connection's vhost is open before the first frame that it is told of."""

    def __init__(
        self,
        client: ClientLink,
        broker: BrokerLink,
        history: History,
        options: TakeoverOptions,
        figures: GatewayFigures,
    ) -> None:
        self._client = client
        self._broker = broker
        self._history = history
        self._options = options
        self._figures = figures
        self._ids = SubscriptionIds(self._resume)
        self._receivers = self._ids.receivers
        self._view = BrokerQuestions(broker, self._ids)
        self._known: tuple[TakeoverParts, SideAnswers] | None = None
        self._subscribing: dict[int, int] = {}  # correlation id: subscription id
        self._unsubscribing: dict[int, int] = {}
        self._updates: dict[int, FollowedSubscription] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def from_client(self, key: int, frame: bytes) -> bool:
        """Take a frame of the client, or let it pass. One that is no frame is the broker's to answer."""
        try:
            match key:
                case Key.CREDIT:
                    return self._credit(frame)
                case Key.SUBSCRIBE:
                    return self._subscribe(frame)
                case Key.UNSUBSCRIBE:
                    return self._unsubscribe(frame)
                case Key.STORE_OFFSET:
                    self._side().store(frame)
                case _ if key in QUESTIONS:
                    self._side().question(key, frame)
                case _ if key == ANSWER | Key.CONSUMER_UPDATE:
                    update = ConsumerUpdateAnswer.from_body(frame[LENGTH_BYTES:])
                    subscription = self._updates.pop(update.correlation_id, None)
                    return subscription is not None and subscription.choose(update)
        except BadFrameError as err:
            log.info("passed on, as it is: %s", err)
        return False

    def from_broker(self, key: int, frame: bytes) -> bool:
        """Take a frame of the broker, or let it pass. Raises BadFrameError."""
        body = frame[LENGTH_BYTES:]
        if key == ANSWER | Key.SUBSCRIBE:
            self._subscribed(CodeAnswer.from_body(body))
        elif key == ANSWER | Key.UNSUBSCRIBE:
            number = self._unsubscribing.pop(CodeAnswer.from_body(body).correlation_id, None)
            if number is not None:
                self._ids.release(number)
        elif key == Key.METADATA_UPDATE:
            self._stream_gone(MetadataUpdate.from_body(body).stream)
        elif key == Key.CONSUMER_UPDATE:
            update = ConsumerUpdate.from_body(body)
            subscription = self._receivers.get(update.subscription_id)
            if isinstance(subscription, FollowedSubscription):
                if update.is_active:
                    self._updates[update.correlation_id] = subscription
                return subscription.consumer_update(update)
        elif key & ~ANSWER in QUESTIONS:
            return self._side().answer(key, frame)
        return False

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        """Decide about a chunk."""
        receiver = self._receivers.get(subscription_id)
        if receiver is None:
            # After the end nobody knows any more what the client has had.
            return Verdict.DROP if self._is_closed else Verdict.PASS
        return receiver.deliver(version, head)

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        """Take a chunk that was kept."""
        receiver = self._receivers.get(subscription_id)
        if receiver is not None:
            receiver.kept(version, frame)

    def closed(self) -> None:
        """End everything."""
        self._is_closed = True
        for receiver in list(self._receivers.values()):
            if isinstance(receiver, FollowedSubscription):
                receiver.end()
        self._receivers.clear()
        self._updates.clear()
        self._view.close()
        if self._known is not None:
            self._known[1].close()
        for task in self._tasks:
            task.cancel()

    def _credit(self, frame: bytes) -> bool:
        if len(frame) < _CREDIT.size:
            raise BadFrameError(f"a Credit of {len(frame)} bytes")
        # Some clients send one for each chunk: it is read without a value of its own.
        number, credit = _CREDIT.unpack_from(frame)
        receiver = self._receivers.get(number)
        if isinstance(receiver, FollowedSubscription):
            return receiver.credit(credit)
        if isinstance(receiver, ReservedId):
            if receiver.waiting:
                return self._hold(receiver, Key.CREDIT, frame)
            if isinstance(receiver, ChunkQuestion):
                # The client has no such subscription, and must not give credits to the gateway's.
                refused = CreditAnswer(Code.SUBSCRIPTION_DOES_NOT_EXIST, number)
                self._client.send(refused.to_bytes())
                return True
        return False

    def _subscribe(self, frame: bytes) -> bool:
        request = Subscribe.from_body(frame[LENGTH_BYTES:])
        receiver = self._receivers.get(request.subscription_id)
        if isinstance(receiver, ReservedId):
            return self._hold(receiver, Key.SUBSCRIBE, frame)
        if isinstance(receiver, FollowedSubscription):
            return receiver.postpone(frame)  # to the broker, which says that there is one already
        if receiver is not None:
            return False
        self._subscribing[request.correlation_id] = request.subscription_id
        if not request.stream or EVERY_CHUNK in request.properties.items():
            # Whoever asks for what no client knows of wants the broker's own log.
            self._receivers[request.subscription_id] = TransparentId(request.stream)
            return False
        subscription = FollowedSubscription(request, frame, self._parts(), self._failed)
        self._receivers[request.subscription_id] = subscription
        subscription.begin()
        return True

    def _unsubscribe(self, frame: bytes) -> bool:
        request = Unsubscribe.from_body(frame[LENGTH_BYTES:])
        number = request.subscription_id
        receiver = self._receivers.get(number)
        if isinstance(receiver, ReservedId):
            if receiver.waiting:
                return self._hold(receiver, Key.UNSUBSCRIBE, frame)
            if isinstance(receiver, ChunkQuestion):
                code = Code.SUBSCRIPTION_DOES_NOT_EXIST
                self._client.send(plain_answer(Key.UNSUBSCRIBE, request.correlation_id, code))
                return True
            return False
        if receiver is None:
            return False
        if isinstance(receiver, FollowedSubscription):
            self._subscribing.pop(receiver.request.correlation_id, None)
            question = self._ids.lent.get(number)
            if question is not None:
                # Its id is in use: Subscribe and Unsubscribe are the broker's to answer as if they came after that.
                self._ids.lenders.pop(number, None)
                self._receivers[number] = question
                for held in receiver.withdraw():
                    self._hold(question, Key.SUBSCRIBE, held)
                return self._hold(question, Key.UNSUBSCRIBE, frame)
            receiver.hand_over()
            receiver.end()
        self._receivers[number] = ReservedId()
        self._unsubscribing[request.correlation_id] = number
        return False

    def _hold(self, reserved: ReservedId, key: int, frame: bytes) -> bool:
        if not reserved.hold(key, frame):
            self._client.close(Code.PRECONDITION_FAILED, "too many requests at once for one subscription id")
        return True

    def _subscribed(self, answer: CodeAnswer) -> None:
        number = self._subscribing.pop(answer.correlation_id, None)
        if number is None:
            return
        receiver = self._receivers.get(number)
        if answer.code != Code.OK:
            if isinstance(receiver, FollowedSubscription):
                receiver.end()
            self._ids.release(number)
        elif isinstance(receiver, FollowedSubscription):
            self._side().readable(receiver.stream)
            receiver.confirmed()

    def _stream_gone(self, stream: str) -> None:
        """Forget the subscriptions to a stream that the broker has ended."""
        for number, receiver in list(self._receivers.items()):
            if isinstance(receiver, FollowedSubscription):
                if receiver.stream == stream and receiver.is_upstream:
                    receiver.end()
                    del self._receivers[number]
            elif isinstance(receiver, TransparentId) and receiver.stream == stream:
                del self._receivers[number]

    def _failed(self, subscription: FollowedSubscription, error: ColdstreamError) -> None:
        """End a subscription that cannot go on."""
        stream = subscription.stream
        log.error("subscription %d to %r ends: %s", subscription.request.subscription_id, stream, error)
        if subscription.stage is SubscriptionStage.DECIDING:
            correlation_id, number = subscription.request.correlation_id, subscription.request.subscription_id
            self._subscribing.pop(correlation_id, None)
            self._ids.lenders.pop(number, None)
            if number in self._ids.lent:
                self._receivers[number] = self._ids.lent[number]
            else:
                del self._receivers[number]
            self._client.send(plain_answer(Key.SUBSCRIBE, correlation_id, Code.STREAM_NOT_AVAILABLE))
            for frame in subscription.postponed:
                self._resume(Key.SUBSCRIBE, frame)
            return
        # To the client this ends all subscriptions to the stream: so none of them may go on.
        for number, receiver in list(self._receivers.items()):
            if isinstance(receiver, FollowedSubscription) and receiver.stream == stream and receiver.is_upstream:
                receiver.end()
                self._end_upstream(number)
        self._client.send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream).to_bytes())

    def _end_upstream(self, number: int) -> None:
        self._receivers[number] = ReservedId()
        task = asyncio.ensure_future(self._end_quietly(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_quietly(self, number: int) -> None:
        try:
            await self._broker.request(lambda one: Unsubscribe(one, number), UnsubscribeAnswer)
        except (UnavailableError, ClosedLinkError) as err:
            # Chunks may still come for this id: it stays reserved.
            log.warning("subscription %d does not end at the broker: %s", number, err)
            return
        self._ids.release(number)

    def _resume(self, key: int, frame: bytes) -> None:
        if not self.from_client(key, frame):
            self._broker.send(frame)

    def _parts(self) -> TakeoverParts:
        return self._opened()[0]

    def _side(self) -> SideAnswers:
        return self._opened()[1]

    def _opened(self) -> tuple[TakeoverParts, SideAnswers]:
        if self._known is None:
            planner = Planner(self._view, self._history, self._broker.vhost, self._options)
            parts = TakeoverParts(
                self._client, self._broker, self._history, self._view, planner, self._options, self._figures, self._ids
            )
            self._known = parts, SideAnswers(parts)
        return self._known


def takeover_maker(history: History, options: TakeoverOptions, figures: GatewayFigures) -> MakeInterceptor:
    """Return what makes the interceptor of a connection."""

    def make(client: ClientLink, broker: BrokerLink) -> Takeover:
        return Takeover(client, broker, history, options, figures)

    return make
