"""`OpenFrames`: what a client sends once it has opened a vhost, frame by frame, to whom it belongs.

What has to wait for the archive has a task of its own, so a slow archive delays neither Close, Unsubscribe, Credit and
heartbeats, nor other questions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from coldstream.errors import BadFrameError, ColdstreamError
from coldstream.gateway.alone.client_side import FrameBody, HoldReason
from coldstream.gateway.alone.consumers import AloneConsumers
from coldstream.gateway.alone.offset_questions import OffsetQuestions
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.publishers import DeclaringPublisher
from coldstream.gateway.alone.publishing import AlonePublishers
from coldstream.gateway.alone.question_queue import QuestionQueue
from coldstream.gateway.alone.questions import AloneQuestions
from coldstream.gateway.alone.refusals import AloneRefusalError, code_of, refusal_of
from coldstream.gateway.frames.answers import MetadataUpdate, SequenceAnswer, plain_answer
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    DeclarePublisher,
    DeletePublisher,
    QueryPublisherSequence,
    SaslAuthenticate,
    StoreOffset,
    Subscribe,
)
from coldstream.web.access_tokens import Right

_LOG = logging.getLogger("coldstream.gateway.connection")
MAX_QUESTIONS: Final = 64
"""That wait for the archive at a time, of one connection."""

MAX_LOGGED_REFUSALS: Final = 100
"""Of one connection: a client that asks again and again must not fill a disk."""

_CORRELATION = slice(4, 8)
_Ask = Callable[[FrameBody], Awaitable[None]]


class OpenConnection(Protocol):
    """The connection whose frames they are."""

    async def is_same_user(self, asked: SaslAuthenticate) -> bool:
        """Tell whether a login is right, and of the user who has logged in."""
        ...

    def refuse_frame(self, code: Code, reason: str) -> None:
        """End the connection after a frame that makes no sense."""
        ...

    def closed_by_client(self, body: FrameBody) -> None:
        """Answer a Close, and end."""
        ...

    def leave(self) -> None:
        """End, once what was sent is on its way."""
        ...


class OpenFrames:
    """The frames of one connection, and what it has: subscriptions, publishers, and questions under way."""

    def __init__(self, parts: AloneParts, peer: AlonePeer, connection: OpenConnection) -> None:
        self._peer = peer
        self._connection = connection
        self._refusals = 0
        link = peer.link
        self.queue = QuestionQueue(
            MAX_QUESTIONS, lambda: link.pause(HoldReason.QUESTIONS), lambda: link.resume(HoldReason.QUESTIONS)
        )
        self._questions = AloneQuestions(parts, peer)
        self._offsets = OffsetQuestions(self._questions, parts.history)
        self.consumers = AloneConsumers(parts, peer, self._questions, self.stream_gone)
        self.publishers = AlonePublishers(peer, parts.host, parts.budget, self.stream_gone)
        self._at_once: dict[int, Callable[[FrameBody], None]] = {
            Key.CREDIT: self.consumers.credit,
            Key.UNSUBSCRIBE: self.consumers.unsubscribe,
            Key.CONSUMER_UPDATE | ANSWER: self.consumers.updated,
            Key.EXCHANGE_COMMAND_VERSIONS: self._questions.exchange,
            Key.DECLARE_PUBLISHER: self._declare_publisher,
            Key.DELETE_PUBLISHER: self._delete_publisher,
            Key.STORE_OFFSET: self._store_offset,
            Key.SUBSCRIBE: self._subscribe,
            Key.CLOSE: connection.closed_by_client,
            Key.HEARTBEAT: lambda _: None,
        }
        self._in_time: dict[int, _Ask] = {
            **self._questions.by_key,
            Key.QUERY_OFFSET: self._offsets.query,
            Key.QUERY_PUBLISHER_SEQUENCE: self._query_sequence,
            Key.SASL_AUTHENTICATE: self._log_in_again,
        }

    @property
    def is_used(self) -> bool:
        """Tell whether there are subscriptions or publishers."""
        return bool(len(self.consumers) or len(self.publishers))

    def take(self, key: int, version: int, body: FrameBody) -> None:
        """Take a frame. Raises BadFrameError for one that a client does not send."""
        if key == Key.PUBLISH and version in {1, 2}:
            self.publishers.publish(body, version)
        elif (handle := self._at_once.get(key)) is not None and version == 1:
            handle(body)
        elif (ask := self._in_time.get(key)) is not None and version <= VERSIONS[Key(key)][1]:
            self._ask(key, ask, body)
        else:
            raise BadFrameError(f"a frame of key {key}, version {version}")

    def stream_gone(self, stream: str) -> None:
        """Tell the client that a stream is not to be had here now: it ends what it has of it, and may ask again."""
        self.consumers.end_stream(stream)
        self.publishers.end_stream(stream)
        self._peer.send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream).to_bytes())

    def check_rights(self) -> None:
        """End the subscriptions to what may not be read any more."""
        for stream in self.consumers.streams:
            if not self._peer.may(Right.READ, stream):
                _LOG.warning("a user may not read any more", extra={**self._peer.log_fields, "stream": stream})
                self.stream_gone(stream)

    def forget(self) -> None:
        """Serve nothing any more. What was published and which offsets were stored is dealt with all the same."""
        self.queue.close()
        self.consumers.close()

    # What has to wait.

    def _ask(self, key: int, ask: _Ask, body: FrameBody) -> None:
        # Nobody waits for the answer to a StoreOffset: it counts also if the client has left.
        self.queue.ask(lambda: self._answer(key, ask, body), outlives=key == Key.STORE_OFFSET)

    async def _answer(self, key: int, ask: _Ask, body: FrameBody) -> None:
        try:
            code = await self._code(key, ask, body)
        except BadFrameError as err:
            self._connection.refuse_frame(Code.UNKNOWN_FRAME, str(err))
            return
        if code is not None and key != Key.STORE_OFFSET:
            self._peer.send(refusal_of(key, int.from_bytes(body[_CORRELATION], "big"), code))

    async def _code(self, key: int, ask: _Ask, body: FrameBody) -> Code | None:
        """Have a question answered; return the code by which it is refused, None if it was answered."""
        what = {**self._peer.log_fields, "request": Key(key).name}
        try:
            async with asyncio.timeout(self._peer.options.request_within_s):
                await ask(body)
        except BadFrameError:
            raise
        except TimeoutError:
            _LOG.warning("the archive did not answer in time", extra=what)
            return Code.STREAM_NOT_AVAILABLE
        except ColdstreamError as err:
            self._log_refusal(Key(key), err)
            return code_of(err)
        except Exception:  # noqa: BLE001  a defect of ours: the client must not wait for ever
            _LOG.exception("a request failed", extra=what)
            return Code.INTERNAL_ERROR
        return None

    # What takes an id at once, so that what follows finds it.

    def _subscribe(self, body: FrameBody) -> None:
        asked = Subscribe.from_body(body)
        try:
            held = self.consumers.reserve(asked)
        except AloneRefusalError as err:
            self._refuse(Key.SUBSCRIBE, asked.correlation_id, err)
            return
        self._ask(Key.SUBSCRIBE, lambda _: self.consumers.subscribe(asked, held), body)

    def _declare_publisher(self, body: FrameBody) -> None:
        asked = DeclarePublisher.from_body(body)
        try:
            self._questions.check(Right.WRITE, asked.stream)
            declaring = self.publishers.reserve(asked)
        except AloneRefusalError as err:
            self._refuse(Key.DECLARE_PUBLISHER, asked.correlation_id, err)
            return
        self._ask(Key.DECLARE_PUBLISHER, lambda _: self._declare(asked, declaring), body)

    async def _declare(self, asked: DeclarePublisher, declaring: DeclaringPublisher) -> None:
        try:
            await self._questions.writable(asked.stream)
            await self.publishers.declare(declaring)
        except BaseException:
            self.publishers.give_up(declaring)
            raise
        self._peer.send(plain_answer(Key.DECLARE_PUBLISHER, asked.correlation_id, Code.OK))

    def _refuse(self, key: Key, correlation_id: int, err: AloneRefusalError) -> None:
        self._log_refusal(key, err)
        self._peer.send(plain_answer(key, correlation_id, err.code))

    def _log_refusal(self, key: Key, err: ColdstreamError) -> None:
        self._refusals += 1
        if self._refusals > MAX_LOGGED_REFUSALS:
            return
        last = "; more of this connection are not logged" if self._refusals == MAX_LOGGED_REFUSALS else ""
        what = {**self._peer.log_fields, "request": key.name, "error": str(err)}
        _LOG.info("refused a request%s", last, extra=what)

    # The others.

    def _delete_publisher(self, body: FrameBody) -> None:
        asked = DeletePublisher.from_body(body)
        code = Code.OK if self.publishers.delete(asked.publisher_id) else Code.PUBLISHER_DOES_NOT_EXIST
        self._peer.send(plain_answer(Key.DELETE_PUBLISHER, asked.correlation_id, code))

    async def _query_sequence(self, body: FrameBody) -> None:
        asked = QueryPublisherSequence.from_body(body)
        await self._questions.writable(asked.stream)
        sequence = await self.publishers.sequence(asked.reference or "", asked.stream)
        self._peer.send(SequenceAnswer(asked.correlation_id, Code.OK, sequence).to_bytes())

    def _store_offset(self, body: FrameBody) -> None:
        asked = StoreOffset.from_body(body)
        if self._offsets.is_known(asked):
            self._offsets.store(asked)
        else:
            self._ask(Key.STORE_OFFSET, self._offsets.store_of_unknown, body)

    async def _log_in_again(self, body: FrameBody) -> None:
        asked = SaslAuthenticate.from_body(body)
        is_right = await self._connection.is_same_user(asked)
        code = Code.OK if is_right else Code.AUTHENTICATION_FAILURE
        self._peer.send(plain_answer(Key.SASL_AUTHENTICATE, asked.correlation_id, code))
        if not is_right:
            self._connection.leave()
