"""`AloneConnection`: one client. Frames come in one by one; what has to wait for the archive has a task of its own.

So a slow archive delays neither Close, Unsubscribe, Credit and heartbeats, nor other questions.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from coldstream.errors import BadFrameError, ColdstreamError
from coldstream.gateway.alone.client_side import AloneLink, ClientSide, EveryFrame, FrameBody
from coldstream.gateway.alone.consumers import AloneConsumers
from coldstream.gateway.alone.greeting import Greeting, GreetingStep
from coldstream.gateway.alone.liveness import Liveness, LivenessVerdict
from coldstream.gateway.alone.options import LEAST_FRAME_BYTES
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.publishing import AlonePublishers
from coldstream.gateway.alone.question_queue import QuestionQueue
from coldstream.gateway.alone.questions import AloneQuestions, AloneRefusalError, code_of, refusal_of
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
    Subscribe,
)
from coldstream.gateway.proxy.scanner import FrameScanner
from coldstream.gateway.proxy.side import ConnectionSide
from coldstream.live.address import place_text
from coldstream.streams.publishers import MAX_PUBLISHER_BYTES

_LOG = logging.getLogger("coldstream.gateway.connection")
MAX_QUESTIONS: Final = 64
"""That wait for the archive at a time, of one connection."""

_GOODBYE_S = 5.0
_HEARTBEAT = Heartbeat().to_bytes()
_CORRELATION = slice(4, 8)


class AloneConnection:
    """One client's connection. `over` is called once, when its socket is closed. `scratch` is what all read into."""

    def __init__(
        self, number: int, parts: AloneParts, scratch: memoryview, over: Callable[[AloneConnection], None]
    ) -> None:
        self._number = number
        self._parts = parts
        self._scratch = scratch
        self._over = over
        self._loop = asyncio.get_running_loop()
        self.client: ConnectionSide = ClientSide(self)
        self._side = self.client
        self._is_closing = self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun_at = self._loop.time()

    # SideOwner

    def made(self, side: ConnectionSide) -> None:
        """Begin, once the socket is connected."""
        assert isinstance(side, ClientSide)
        parts, options = self._parts, self._parts.options
        self._side = side
        client, here = (side.transport.get_extra_info(name) or ("", 0) for name in ("peername", "sockname"))
        advertised = (options.advertised_host, options.advertised_port)
        self._link = AloneLink(side, place_text(str(client[0]), int(client[1])), self.close)
        self._peer = AlonePeer(
            self._link,
            str(client[0]),
            advertised if options.advertised_host else (str(here[0]), int(here[1])),
            options,
            parts.permissions,
            parts.figures,
        )
        self._liveness = Liveness(options.idle_s, options.stuck_s, self._loop.time())
        self._greeting = Greeting(self._peer, parts.logins, self._spawn, self._agreed, self._end)
        self._questions = AloneQuestions(parts, self._peer)
        self._queue = QuestionQueue(MAX_QUESTIONS, self._link.pause, self._link.resume)
        self._consumers = AloneConsumers(parts, self._peer, self._questions, self._stream_gone)
        self._publishers = AlonePublishers(self._peer, parts.host, parts.budget, self._stream_gone)
        # What it sends too much of, it does not get answered: the side is its own other side.
        self._scanner = FrameScanner(
            self._scratch,
            EveryFrame(self),
            side.outlet,
            with_chunks=False,
            max_frame_bytes=LEAST_FRAME_BYTES,
            max_taken_bytes=options.frame_max_bytes,
        )
        self._at_once: dict[int, Callable[[FrameBody], None]] = {
            Key.CREDIT: self._consumers.credit,
            Key.UNSUBSCRIBE: self._consumers.unsubscribe,
            Key.CONSUMER_UPDATE | ANSWER: self._consumers.updated,
            Key.EXCHANGE_COMMAND_VERSIONS: self._questions.exchange,
            Key.DELETE_PUBLISHER: self._delete_publisher,
            Key.STORE_OFFSET: self._store_offset,
            Key.SUBSCRIBE: self._subscribe,
            Key.CLOSE: self._closed_by_client,
            Key.HEARTBEAT: lambda _: None,
        }
        self._in_time: dict[int, Callable[[FrameBody], Awaitable[None]]] = {
            **self._questions.by_key,
            Key.DECLARE_PUBLISHER: self._declare_publisher,
            Key.QUERY_PUBLISHER_SEQUENCE: self._query_sequence,
            Key.SASL_AUTHENTICATE: self._log_in_again,
        }
        side.join(self._scanner, side)

    def broken(self, side: ConnectionSide, code: Code, reason: str) -> None:  # noqa: ARG002  there is one
        """End after what cannot be a frame: nothing that comes after it means anything."""
        self._scanner.is_over = True
        self._refuse_frame(code, reason)

    def lost(self, side: ConnectionSide, error: Exception | None) -> None:  # noqa: ARG002
        """End everything: the socket is closed."""
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._forget()
        self._publishers.close()
        for task in tuple(self._tasks):
            task.cancel()
        _LOG.log(
            logging.INFO if side.read_bytes else logging.DEBUG,
            "connection ended",
            extra={
                **self._log_fields(),
                "bytes_from_client": side.read_bytes,
                "bytes_to_client": side.sent_bytes,
                "frames_from_client": self._scanner.frames,
            },
        )
        self._over(self)

    # By the server.

    @property
    def is_closing(self) -> bool:
        """Tell whether it is ending already."""
        return self._is_closing or self._is_over

    def close(self, code: Code, reason: str) -> None:
        """Have what was published confirmed; then say goodbye, and end within a bound."""
        if self.is_closing:
            return
        self._is_closing = True
        if not self._is_open:
            self._end()
            return
        self._forget()
        goodbye = Close(secrets.randbits(31), code, reason[:1000]).to_bytes()
        if not self._publishers.is_pending:
            self._say(goodbye)
            return
        self._link.pause()
        self._spawn(self._say_once_confirmed(goodbye))

    def abort(self) -> None:
        """Close the socket at once."""
        if hasattr(self._side, "transport"):
            self._side.transport.abort()

    def tick(self, now: float) -> None:
        """Send a heartbeat if one is due; let go of a client that is silent, stuck or idle. Called every second."""
        if self.is_closing or not hasattr(self._side, "transport"):
            return
        if not self._is_open:
            if now - self._begun_at > self._parts.options.login_within_s:
                _LOG.info("a client did not log in in time", extra=self._log_fields())
                self.abort()
            return
        verdict = self._liveness.look(
            now,
            read_bytes=self._side.read_bytes,
            sent_bytes=self._side.sent_bytes,
            is_full=self._link.is_full,
            is_held=self._side.is_held,
            is_used=bool(len(self._consumers) or len(self._publishers)),
        )
        match verdict:
            case LivenessVerdict.BEAT:
                self._link.send(_HEARTBEAT)
            case LivenessVerdict.SILENT | LivenessVerdict.STUCK:
                _LOG.warning("a client is %s", verdict.name.lower(), extra=self._log_fields())
                self.abort()
            case LivenessVerdict.IDLE:
                self.close(Code.OK, "idle")

    # FrameReceiver

    def frame(self, body: FrameBody) -> None:
        """See FrameReceiver."""
        try:
            key, version = key_of(body)
            if self._is_closing:
                if key in {Key.CLOSE, Key.CLOSE | ANSWER}:
                    self._end()
            elif self._is_open:
                self._take(key, version, body)
            elif key == Key.CLOSE:
                self._closed_by_client(body)
            else:
                self._greeting.frame(key, body)
        except BadFrameError as err:
            self._refuse_frame(Code.UNKNOWN_FRAME, str(err))

    # Frames of an open connection.

    def _take(self, key: int, version: int, body: FrameBody) -> None:
        if key == Key.PUBLISH and version in {1, 2}:
            self._publishers.publish(body, version)
        elif (handle := self._at_once.get(key)) is not None and version == 1:
            handle(body)
        elif (ask := self._in_time.get(key)) is not None and version <= VERSIONS[Key(key)][1]:
            self._ask(key, ask, body)
        else:
            raise BadFrameError(f"a frame of key {key}, version {version}")

    def _ask(self, key: int, ask: Callable[[FrameBody], Awaitable[None]], body: FrameBody) -> None:
        self._queue.ask(lambda: self._answer(key, ask, body))

    async def _answer(self, key: int, ask: Callable[[FrameBody], Awaitable[None]], body: FrameBody) -> None:
        try:
            code = await self._code(key, ask, body)
        except BadFrameError as err:
            self._refuse_frame(Code.UNKNOWN_FRAME, str(err))
            return
        if code is not None and key != Key.STORE_OFFSET:
            self._peer.send(refusal_of(key, int.from_bytes(body[_CORRELATION], "big"), code))

    async def _code(self, key: int, ask: Callable[[FrameBody], Awaitable[None]], body: FrameBody) -> Code | None:
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

    def _subscribe(self, body: FrameBody) -> None:
        asked = Subscribe.from_body(body)
        try:
            held = self._consumers.reserve(asked)
        except AloneRefusalError as err:
            _LOG.info("refused a request", extra={**self._log_fields(), "request": "SUBSCRIBE", "error": str(err)})
            self._peer.send(plain_answer(Key.SUBSCRIBE, asked.correlation_id, err.code))
            return
        self._ask(Key.SUBSCRIBE, lambda _: self._consumers.subscribe(asked, held), body)

    async def _declare_publisher(self, body: FrameBody) -> None:
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

    def _delete_publisher(self, body: FrameBody) -> None:
        asked = DeletePublisher.from_body(body)
        code = Code.OK if self._publishers.delete(asked.publisher_id) else Code.PUBLISHER_DOES_NOT_EXIST
        self._peer.send(plain_answer(Key.DELETE_PUBLISHER, asked.correlation_id, code))

    async def _query_sequence(self, body: FrameBody) -> None:
        asked = QueryPublisherSequence.from_body(body)
        await self._questions.writable(asked.stream)
        sequence = await self._publishers.sequence(asked.reference or "", asked.stream)
        self._peer.send(SequenceAnswer(asked.correlation_id, Code.OK, sequence).to_bytes())

    def _store_offset(self, body: FrameBody) -> None:
        asked = StoreOffset.from_body(body)
        if asked.stream in self._questions.known:
            self._questions.store_offset(asked)
        else:
            self._ask(Key.STORE_OFFSET, lambda _: self._questions.store_offset_of_unknown(asked), body)

    async def _log_in_again(self, body: FrameBody) -> None:
        asked = SaslAuthenticate.from_body(body)
        is_right = await self._greeting.is_same_user(asked)
        code = Code.OK if is_right else Code.AUTHENTICATION_FAILURE
        self._peer.send(plain_answer(Key.SASL_AUTHENTICATE, asked.correlation_id, code))
        if not is_right:
            self._end()

    def _closed_by_client(self, body: FrameBody) -> None:
        asked = Close.from_body(body)
        self._peer.send(CloseAnswer(asked.correlation_id, Code.OK).to_bytes())
        self._end()

    # How it ends.

    @property
    def _is_open(self) -> bool:
        return self._greeting.step is GreetingStep.DONE

    def _stream_gone(self, stream: str) -> None:
        """Tell the client that a stream is not to be had here now: it ends what it has of it, and may ask again."""
        self._consumers.end_stream(stream)
        self._peer.send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream).to_bytes())

    def _agreed(self, frame_max_bytes: int, heartbeat_s: int) -> None:
        self._scanner.max_frame_bytes = frame_max_bytes
        self._liveness.heartbeat_s = heartbeat_s

    def _refuse_frame(self, code: Code, reason: str) -> None:
        _LOG.warning("a client sent what it may not", extra={**self._log_fields(), "error": reason})
        if self.is_closing or not self._is_open:
            self.abort()
        else:
            self.close(code, reason)

    def _forget(self) -> None:
        """Serve nothing any more."""
        self._queue.close()
        self._consumers.close()

    async def _say_once_confirmed(self, goodbye: bytes) -> None:
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self._publishers.settled()
        except TimeoutError:
            _LOG.warning("what was published is not durable yet", extra=self._log_fields())
        self._say(goodbye)

    def _say(self, goodbye: bytes) -> None:
        """Send a last frame, and wait a moment for its answer."""
        self._side.outlet.finish(goodbye)
        self._link.resume()
        self._timer = self._loop.call_later(_GOODBYE_S, self._end)

    def _end(self) -> None:
        """Close the socket, once what was sent is on its way; at once if the client takes nothing."""
        self._is_closing = True
        self._forget()
        self._side.outlet.finish()
        # What is queued is written when the frame is done that this is called for.
        self._loop.call_soon(self._shut)

    def _shut(self) -> None:
        if self._is_over:
            return
        self._side.transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_GOODBYE_S, self.abort)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _log_fields(self) -> dict[str, str | int]:
        peer = self._peer
        return {"connection": self._number, "peer": peer.link.peer, "user": peer.user, "vhost": peer.vhost}
