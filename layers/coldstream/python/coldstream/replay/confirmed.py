"""Publishing to an exchange by AMQP 0.9.1, many messages ahead of their confirms."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import takewhile
from types import TracebackType
from typing import Any, Self

from pika import BasicProperties, URLParameters, exceptions, spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.frame import Method

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    InvalidInputError,
    InvalidSettingError,
    NotFoundError,
    UnavailableError,
    UnroutableError,
)
from coldstream.replay.amqp091 import OFFSET_HEADER
from coldstream.units import MIB, Offset

WINDOW_MESSAGES = 2000
"""Sent and not confirmed yet."""

WINDOW_BYTES = 4 * MIB

CONFIRM_TIMEOUT_S = 30.0
"""For the next confirm. A broker that is short of memory or disk takes nothing, and confirms nothing."""

CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0
_FRAME_OVERHEAD_BYTES = 32
_DENIED = (403, 530)  # access refused; the vhost is not there, or not for this user
_DENIALS = (exceptions.ProbableAuthenticationError, exceptions.ProbableAccessDeniedError)
_NOT_FOUND = 404
_PRECONDITION_FAILED = 406

logging.getLogger("pika").addHandler(logging.NullHandler())  # it writes down every error that it also raises


class ExchangePublisher:
    """Publishes to one exchange; an asynchronous context manager, for one task at a time.

    Entering it connects and looks whether the exchange is there. It raises InvalidSettingError for a URI that means
    nothing, AccessDeniedError, NotFoundError, UnavailableError. Once anything was refused or lost, every call raises:
    open another, and go on from `safe_to`.

    A message that no queue is bound for the broker confirms, too, and drops. That is an UnroutableError, and not
    confirmed for us; with `allow_unroutable` such messages are counted in `unroutable`.
    """

    def __init__(self, uri: str, exchange: str, *, allow_unroutable: bool = False) -> None:
        try:
            self._parameters = URLParameters(uri)
        except Exception:  # noqa: BLE001  whatever it is, it may quote the password
            raise InvalidSettingError("AMQP broker", "is no URI as amqp://user:password@host:5672/vhost") from None
        self._parameters.client_properties = {"connection_name": "coldstream-replay", "product": "coldstream"}
        self._parameters.blocked_connection_timeout = CONFIRM_TIMEOUT_S
        self._exchange = exchange
        self._where = f"exchange {exchange!r} at {self._parameters.host}:{self._parameters.port}"
        self._connection: AsyncioConnection | None = None
        self._channel: Channel | None = None
        self._tag = 0
        self._open: OrderedDict[int, tuple[int, int]] = OrderedDict()  # offset and bytes, by delivery tag
        self._open_bytes = 0
        self._error: ColdstreamError | None = None
        self._news = asyncio.Event()
        self._allow_unroutable = allow_unroutable
        self._dropped: Offset | None = None
        self.unroutable = 0

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._begin()
        except TimeoutError as err:
            await self._close()
            raise UnavailableError(f"{self._where}: no answer within {CONNECT_TIMEOUT_S:g} s") from err
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    def safe_to(self, sent_to: Offset) -> Offset:
        """Return up to which offset, `sent_to` at most, all is confirmed of what was sent."""
        oldest = next((Offset(offset) for offset, _ in self._open.values()), sent_to)
        return oldest if self._dropped is None else min(oldest, self._dropped)

    @property
    def max_properties_bytes(self) -> int:
        """What the properties of a message may take: the frame that they are in cannot be cut."""
        assert self._connection is not None
        return int(self._connection.params.frame_max) - _FRAME_OVERHEAD_BYTES

    async def send(self, offset: Offset, key: str, properties: BasicProperties, body: bytes) -> None:
        """Send a message, and wait while too much is not confirmed. Offsets have to rise, and be in OFFSET_HEADER.

        Raises AccessDeniedError, NotFoundError, UnavailableError, UnroutableError; InvalidInputError where the broker
        does not take it.
        """
        while len(self._open) >= WINDOW_MESSAGES or self._open_bytes >= WINDOW_BYTES:
            await self._more()
        self._check()
        assert self._channel is not None
        self._tag += 1
        self._open[self._tag] = offset, len(body)
        self._open_bytes += len(body)
        try:
            self._channel.basic_publish(self._exchange, key, body, properties, mandatory=True)
        except (exceptions.AMQPConnectionError, exceptions.AMQPChannelError) as err:  # closed, and not told yet
            self._lost(err)
            self._check()

    async def flush(self) -> None:
        """Wait until all that was sent is confirmed. Raises what `send` raises."""
        while self._open:
            await self._more()
        self._check()

    async def _begin(self) -> None:
        def connect(done: Callable[..., None]) -> None:
            self._connection = AsyncioConnection(
                self._parameters,
                on_open_callback=done,
                on_open_error_callback=lambda _, error: self._lost(error),
                on_close_callback=lambda _, error: self._lost(error),
                custom_ioloop=asyncio.get_running_loop(),
            )

        def open_channel(done: Callable[..., None]) -> None:
            assert self._connection is not None
            self._channel = self._connection.channel(on_open_callback=done)
            self._channel.add_on_close_callback(lambda _, error: self._lost(error))
            self._channel.add_on_return_callback(self._returned)

        await self._asked(connect)
        await self._asked(open_channel)
        assert self._channel is not None
        channel = self._channel
        if self._exchange:  # the default exchange has no name to ask for
            await self._asked(lambda done: channel.exchange_declare(self._exchange, passive=True, callback=done))
        await self._asked(lambda done: channel.confirm_delivery(self._answered, callback=done))

    async def _asked(self, ask: Callable[[Callable[..., None]], None]) -> None:
        """Ask, and wait until what `ask` was given is called."""
        answers: list[tuple[Any, ...]] = []

        def done(*answer: Any) -> None:
            answers.append(answer)
            self._news.set()

        ask(done)
        while not answers:
            await self._more()

    def _answered(self, frame: Method) -> None:
        """Take confirms of the broker's."""
        answer = frame.method
        if isinstance(answer, spec.Basic.Nack):
            self._lost(UnavailableError(f"{self._where}: the broker could not take messages"))
            return
        tags = [answer.delivery_tag]
        if answer.multiple:
            tags = list(takewhile(lambda tag: tag <= answer.delivery_tag, self._open))
        for tag in tags:
            _, size_bytes = self._open.pop(tag)
            self._open_bytes -= size_bytes
        self._news.set()

    def _returned(self, _: Channel, method: spec.Basic.Return, properties: BasicProperties, __: bytes) -> None:
        """Take a message that no queue is bound for; the broker says so before it confirms it."""
        self.unroutable += 1
        if self._allow_unroutable or self._dropped is not None:
            return
        self._dropped = Offset(properties.headers[OFFSET_HEADER])
        self._lost(UnroutableError(self._where, self._dropped, method.routing_key))

    def _lost(self, error: BaseException) -> None:
        """Raise what `error` means from now on."""
        self._error = self._error or (error if isinstance(error, ColdstreamError) else self._meaning(error))
        self._news.set()

    def _meaning(self, error: BaseException) -> ColdstreamError:
        found = _root(error)
        problem = f"{self._where}: {str(found) or type(found).__name__}"
        code = getattr(found, "reply_code", None)
        kind: type[ColdstreamError] = UnavailableError
        if code in _DENIED or isinstance(found, _DENIALS):
            kind = AccessDeniedError
        elif code == _NOT_FOUND:
            kind = NotFoundError
        elif code == _PRECONDITION_FAILED:
            return InvalidInputError("message", problem)
        return kind(problem)

    async def _more(self) -> None:
        """Wait for news."""
        self._check()
        self._news.clear()
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                await self._news.wait()
        except TimeoutError as err:
            raise UnavailableError(f"{self._where}: nothing confirmed within {CONFIRM_TIMEOUT_S:g} s") from err
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _close(self) -> None:
        """Say goodbye, and let go of the socket."""
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        closed = asyncio.Event()
        connection.add_on_close_callback(lambda *_: closed.set())
        with contextlib.suppress(exceptions.AMQPError, TimeoutError):
            connection.close()
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await closed.wait()


def _root(error: BaseException) -> BaseException:
    """Return what is behind the errors of a connection's attempts."""
    attempts: Sequence[BaseException] = getattr(error, "exceptions", ())
    behind = attempts[-1] if attempts else getattr(error, "exception", None)
    return error if behind is None else _root(behind)
