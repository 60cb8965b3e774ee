"""`AloneConnection`: one client. Frames come in one by one; what has to wait for the archive has a task of its own.

So a slow archive delays neither Close, Unsubscribe, Credit and heartbeats, nor other questions. How many questions wait
at a time is bounded: while there are too many, nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from coldstream.errors import BadFrameError, ColdstreamError
from coldstream.gateway.alone.consumers import AloneConsumers
from coldstream.gateway.alone.greeting import Greeting, GreetingStep
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.publishing import AlonePublishers
from coldstream.gateway.alone.questions import AloneQuestions, AloneRefusalError, code_of, refusal_of
from coldstream.gateway.alone.socket_link import SocketLink
from coldstream.gateway.frames.answers import MetadataUpdate, SequenceAnswer, plain_answer
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    CloseAnswer,
    DeclarePublisher,
    DeletePublisher,
    Heartbeat,
    QueryPublisherSequence,
    SaslAuthenticate,
    StoreOffset,
)
from coldstream.streams.publishers import MAX_PUBLISHER_BYTES

_LOG = logging.getLogger(__name__)
_MAX_QUESTIONS = 64
_SILENT_HEARTBEATS = 2
_HEARTBEAT = Heartbeat().to_bytes()
_CORRELATION = slice(4, 8)


class AloneConnection:
    """One client's connection. `on_end` is called once, when it is over."""

    def __init__(self, parts: AloneParts, link: SocketLink, on_end: Callable[[AloneConnection], None]) -> None:
        self._parts = parts
        self._link = link
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._heartbeat_s = 0
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions_waiting = 0
        self._is_flooded = False
        options = parts.options
        self._peer = AlonePeer(
            link,
            link.peer_address,
            options,
            parts.permissions,
            parts.figures,
            (options.advertised_host, options.advertised_port) if options.advertised_host else link.own_address,
        )
        self._greeting = Greeting(self._peer, parts.logins, self._spawn, self._agreed, link.end)
        self._questions = AloneQuestions(parts, self._peer)
        self._consumers = AloneConsumers(parts, self._peer, self._questions, self._stream_gone)
        self._publishers = AlonePublishers(self._peer, parts.host, parts.budget, self._stream_gone)
        self._at_once: dict[int, Callable[[bytes], None]] = {
            Key.CREDIT: self._consumers.credit,
            Key.UNSUBSCRIBE: self._consumers.unsubscribe,
            Key.CONSUMER_UPDATE | ANSWER: self._consumers.updated,
            Key.EXCHANGE_COMMAND_VERSIONS: self._questions.exchange,
            Key.DELETE_PUBLISHER: self._delete_publisher,
            Key.STORE_OFFSET: self._store_offset,
            Key.CLOSE: self._close,
            Key.CLOSE | ANSWER: lambda _: self._link.end(),
            Key.HEARTBEAT: lambda _: None,
        }
        self._waiting: dict[int, Callable[[bytes], Awaitable[None]]] = {
            **self._questions.by_key,
            Key.SUBSCRIBE: self._consumers.subscribe,
            Key.DECLARE_PUBLISHER: self._declare_publisher,
            Key.QUERY_PUBLISHER_SEQUENCE: self._query_sequence,
            Key.SASL_AUTHENTICATE: self._log_in_again,
        }

    @property
    def is_idle(self) -> bool:
        """Tell whether the client has neither publishers nor subscriptions."""
        return not len(self._consumers) and not len(self._publishers)

    # FrameReceiver

    def frame(self, body: bytes) -> None:
        """See FrameReceiver."""
        try:
            key, version = key_of(body)
            if self._link.is_closing:
                if key in {Key.CLOSE, Key.CLOSE | ANSWER}:
                    self._link.end()
            elif self._greeting.step is GreetingStep.DONE:
                self._take(key, version, body)
            elif key == Key.CLOSE:
                self._close(body)
            else:
                self._greeting.frame(key, body)
        except BadFrameError as err:
            self._refuse_frame(Code.UNKNOWN_FRAME, str(err))

    def too_large(self, size_bytes: int) -> None:
        """See FrameReceiver."""
        self._refuse_frame(Code.FRAME_TOO_LARGE, f"a frame of {size_bytes} bytes, of {self._link.max_frame_bytes}")

    def lost(self) -> None:
        """See FrameReceiver."""
        if not self._is_over:
            self._is_over = True
            self._consumers.close()
            self._publishers.close()
            for task in tuple(self._tasks):
                task.cancel()
            self._on_end(self)

    # By the server.

    def tick(self, now: float) -> None:
        """Send a heartbeat if one is due; let go of a client that is silent, stuck or idle. Called every second."""
        link, options = self._link, self._parts.options
        if link.is_closing:
            return
        if self._greeting.step is not GreetingStep.DONE:
            if now - self._begun_at > options.login_within_s:
                _LOG.info("a client did not log in in time", extra={"address": self._peer.address})
                link.abort()
            return
        if link.full_since is not None:
            if now - link.full_since > options.stuck_s:
                _LOG.warning("a client took nothing for too long", extra=self._log_fields())
                link.abort()
            return
        if self._heartbeat_s:
            # Twice as often as agreed, and a second more of patience: this is called once a second.
            if now - link.sent_at >= self._heartbeat_s / 2:
                link.send(_HEARTBEAT)
            if not link.is_paused and now - link.received_at > _SILENT_HEARTBEATS * self._heartbeat_s + 1:
                _LOG.warning("a client is silent", extra=self._log_fields())
                link.abort()
        elif self.is_idle and now - link.received_at > options.idle_s:
            link.close(Code.OK, "idle")

    def drain(self) -> None:
        """Ask the client to leave."""
        if self._greeting.step is GreetingStep.DONE:
            self._link.close(Code.OK, "the server stops")
        else:
            self._link.end()

    def abort(self) -> None:
        """Close the socket at once."""
        self._link.abort()

    async def settled(self) -> None:
        """Wait until what was published is appended, or has failed."""
        await self._publishers.settled()

    # Frames of an open connection.

    def _take(self, key: int, version: int, body: bytes) -> None:
        if key == Key.PUBLISH and version in {1, 2}:
            self._publishers.publish(body, version)
        elif (handle := self._at_once.get(key)) is not None:
            handle(body)
        elif (ask := self._waiting.get(key)) is not None and version <= VERSIONS[Key(key)][1]:
            self._ask(key, ask, body)
        else:
            raise BadFrameError(f"a frame of key {key}, version {version}")

    def _ask(self, key: int, ask: Callable[[bytes], Awaitable[None]], body: bytes) -> None:
        self._questions_waiting += 1
        if self._questions_waiting >= _MAX_QUESTIONS and not self._is_flooded:
            self._is_flooded = True
            self._link.pause()
        self._spawn(self._answer(key, ask, body))

    async def _answer(self, key: int, ask: Callable[[bytes], Awaitable[None]], body: bytes) -> None:
        try:
            code = await self._code(key, ask, body)
            if code is not None and not self._link.is_closing:
                correlation_id = int.from_bytes(body[_CORRELATION], "big")
                self._peer.send(refusal_of(key, correlation_id, code))
        except BadFrameError as err:
            self._refuse_frame(Code.UNKNOWN_FRAME, str(err))
        finally:
            self._questions_waiting -= 1
            if self._is_flooded and self._questions_waiting < _MAX_QUESTIONS // 2:
                self._is_flooded = False
                self._link.resume()

    async def _code(self, key: int, ask: Callable[[bytes], Awaitable[None]], body: bytes) -> Code | None:
        """Have a question answered; return the code by which it is refused, None if it was answered."""
        what = {**self._log_fields(), "request": Key(key).name}
        try:
            async with asyncio.timeout(self._parts.options.request_within_s):
                await ask(body)
        except BadFrameError:
            raise
        except TimeoutError:
            _LOG.warning("the archive did not answer in time", extra=what)
            return Code.STREAM_NOT_AVAILABLE
        except ColdstreamError as err:
            _LOG.info("refused a request", extra={**what, "error": str(err)})
            return code_of(err)
        except Exception:  # noqa: BLE001  a defect of ours: the client must not wait for ever
            _LOG.exception("a request failed", extra=what)
            return Code.INTERNAL_ERROR
        return None

    async def _declare_publisher(self, body: bytes) -> None:
        asked = DeclarePublisher.from_body(body)
        await self._questions.writable(asked.stream)
        publishers = self._publishers
        if len((asked.reference or "").encode()) > MAX_PUBLISHER_BYTES:
            raise AloneRefusalError(Code.PRECONDITION_FAILED, "a reference has 255 bytes at most")
        if asked.reference and publishers.has_reference(asked.reference, asked.stream):
            raise AloneRefusalError(Code.PRECONDITION_FAILED, f"the reference {asked.reference!r} is declared already")
        if publishers.has(asked.publisher_id):
            raise AloneRefusalError(Code.PRECONDITION_FAILED, f"publisher {asked.publisher_id} is declared already")
        await publishers.declare(asked.publisher_id, asked.reference, asked.stream)
        self._peer.send(plain_answer(Key.DECLARE_PUBLISHER, asked.correlation_id, Code.OK))

    def _delete_publisher(self, body: bytes) -> None:
        asked = DeletePublisher.from_body(body)
        code = Code.OK if self._publishers.delete(asked.publisher_id) else Code.PUBLISHER_DOES_NOT_EXIST
        self._peer.send(plain_answer(Key.DELETE_PUBLISHER, asked.correlation_id, code))

    async def _query_sequence(self, body: bytes) -> None:
        asked = QueryPublisherSequence.from_body(body)
        await self._questions.writable(asked.stream)
        sequence = await self._publishers.sequence(asked.reference, asked.stream)
        self._peer.send(SequenceAnswer(asked.correlation_id, Code.OK, sequence).to_bytes())

    def _store_offset(self, body: bytes) -> None:
        asked = StoreOffset.from_body(body)
        if asked.stream in self._questions.known:
            self._questions.store_offset(asked)
        else:
            self._ask(Key.STORE_OFFSET, lambda _: self._questions.store_offset_of_unknown(asked), body)

    async def _log_in_again(self, body: bytes) -> None:
        asked = SaslAuthenticate.from_body(body)
        is_right = await self._greeting.is_same_user(asked)
        code = Code.OK if is_right else Code.AUTHENTICATION_FAILURE
        self._peer.send(plain_answer(Key.SASL_AUTHENTICATE, asked.correlation_id, code))
        if not is_right:
            self._link.end()

    def _close(self, body: bytes) -> None:
        asked = Close.from_body(body)
        self._peer.send(CloseAnswer(asked.correlation_id, Code.OK).to_bytes())
        self._link.end()

    # What else.

    def _stream_gone(self, stream: str) -> None:
        """Tell the client that a stream is not to be had here now: it ends what it has of it, and may ask again."""
        self._consumers.end_stream(stream)
        self._peer.send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream).to_bytes())

    def _agreed(self, frame_max_bytes: int, heartbeat_s: int) -> None:
        self._link.max_frame_bytes = frame_max_bytes
        self._heartbeat_s = heartbeat_s

    def _refuse_frame(self, code: Code, reason: str) -> None:
        _LOG.warning("a client sent what it may not", extra={**self._log_fields(), "error": reason})
        if self._greeting.step is GreetingStep.DONE:
            self._link.close(code, reason)
        else:
            self._link.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _log_fields(self) -> dict[str, str]:
        return {"address": self._peer.address, "user": self._peer.user, "vhost": self._peer.vhost}
