"""A publisher to an exchange by AMQP 0.9.1, which sends many messages ahead of their confirms."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from itertools import takewhile
from types import TracebackType
from typing import Any, Self

from pika import BasicProperties, exceptions, spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.frame import Method

from coldstream.errors import (
    ColdstreamError,
    UnavailableError,
    UnroutableError,
)
from coldstream.replay.amqp091 import OFFSET_HEADER
from coldstream.replay.amqp_errors import amqp_error, amqp_parameters
from coldstream.units import MIB, Offset

WINDOW_MESSAGES = 2000
"""Messages that are sent and not confirmed yet, at most."""

WINDOW_BYTES = 4 * MIB

CONFIRM_TIMEOUT_S = 30.0
"""How long to wait for the next confirm. A broker that is short of memory or disk stops confirming."""

CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0
_FRAME_OVERHEAD_BYTES = 32


class ExchangePublisher:
    """Publishes to one exchange; an asynchronous context manager, for one task at a time.

    Entering it connects and checks that the exchange exists. It raises InvalidSettingError for a bad URI,
    AccessDeniedError, NotFoundError, UnavailableError. Once the broker has refused anything or the connection is lost,
    every call raises: open another publisher, and go on from `safe_to`.

    A broker also confirms a message for which no queue is bound, and drops it. Such a message counts as not confirmed
    and is an UnroutableError; with `allow_unroutable` it is only counted, in `unroutable`, and with `on_unroutable` its
    offset is told as well.
    """

    def __init__(
        self,
        uri: str,
        exchange: str,
        *,
        allow_unroutable: bool = False,
        on_unroutable: Callable[[Offset], None] | None = None,
    ) -> None:
        self._parameters = amqp_parameters(uri)
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
        self._allow_unroutable = allow_unroutable or on_unroutable is not None
        self._on_unroutable = on_unroutable
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
        """Return the offset before which all that was sent is confirmed, at most `sent_to`."""
        oldest = next((Offset(offset) for offset, _ in self._open.values()), sent_to)
        return oldest if self._dropped is None else min(oldest, self._dropped)

    @property
    def max_properties_bytes(self) -> int:
        """Most bytes that the properties of a message may have: they have to fit into one frame."""
        assert self._connection is not None
        return int(self._connection.params.frame_max) - _FRAME_OVERHEAD_BYTES

    async def send(self, offset: Offset, key: str, properties: BasicProperties, body: bytes) -> None:
        """Wait until the window of unconfirmed messages has room, and send a message.

        Offsets have to rise, and be in OFFSET_HEADER. Raises AccessDeniedError, NotFoundError, UnavailableError,
        UnroutableError; InvalidInputError if the broker refuses the message.
        """
        while len(self._open) >= WINDOW_MESSAGES or self._open_bytes >= WINDOW_BYTES:
            await self._wait_for_news()
        self._check()
        assert self._channel is not None
        # The broker numbers the messages of a channel from 1 on: its confirms name these numbers.
        self._tag += 1
        self._open[self._tag] = offset, len(body)
        self._open_bytes += len(body)
        try:
            # `mandatory`: without it the broker drops what it cannot route, and confirms it without a word.
            self._channel.basic_publish(self._exchange, key, body, properties, mandatory=True)
        except (
            exceptions.AMQPConnectionError,
            exceptions.AMQPChannelError,
        ) as err:
            # It is closed, and the callback that says so has not come yet.
            self._lost(err)
            self._check()

    async def flush(self) -> None:
        """Wait until all that was sent is confirmed. Raises what `send` raises."""
        while self._open:
            await self._wait_for_news()
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
            self._channel.add_on_return_callback(self._on_return)

        await self._call_back(connect)
        await self._call_back(open_channel)
        assert self._channel is not None
        channel = self._channel
        if self._exchange:  # the default exchange has no name, and always exists
            await self._call_back(lambda done: channel.exchange_declare(self._exchange, passive=True, callback=done))
        await self._call_back(lambda done: channel.confirm_delivery(self._on_confirm, callback=done))

    async def _call_back(self, begin: Callable[[Callable[..., None]], None]) -> None:
        """Call `begin` with a callback, and wait until pika calls it, or until the connection is lost."""
        answers: list[tuple[Any, ...]] = []

        def done(*answer: Any) -> None:
            answers.append(answer)
            self._news.set()

        begin(done)
        while not answers:
            await self._wait_for_news()

    def _on_confirm(self, frame: Method) -> None:
        """Take confirms from the broker."""
        answer = frame.method
        if isinstance(answer, spec.Basic.Nack):
            self._lost(UnavailableError(f"{self._where}: the broker could not store a message"))
            return
        tags = [answer.delivery_tag]
        if answer.multiple:
            # Tags rise in `_open`, so the walk may end at the first that is greater.
            tags = list(takewhile(lambda tag: tag <= answer.delivery_tag, self._open))
        for tag in tags:
            _, size_bytes = self._open.pop(tag)
            self._open_bytes -= size_bytes
        self._news.set()

    def _on_return(self, _: Channel, method: spec.Basic.Return, properties: BasicProperties, __: bytes) -> None:
        """Take back a message for which no queue is bound. Its confirm comes after, so `safe_to` stays before it."""
        self.unroutable += 1
        if self._on_unroutable is not None:
            self._on_unroutable(Offset(properties.headers[OFFSET_HEADER]))
        if self._allow_unroutable or self._dropped is not None:
            return
        self._dropped = Offset(properties.headers[OFFSET_HEADER])
        self._lost(UnroutableError(self._where, self._dropped, method.routing_key))

    def _lost(self, error: BaseException) -> None:
        """Have every call raise what `error` means. The first error stays: those that follow are its consequences."""
        self._error = self._error or (error if isinstance(error, ColdstreamError) else amqp_error(error, self._where))
        self._news.set()

    async def _wait_for_news(self) -> None:
        """Wait for a confirm, an answer or an error. Raises the error; UnavailableError after CONFIRM_TIMEOUT_S."""
        self._check()
        # No await between the check and this: news that came in between would be cleared unseen.
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
        """Close the connection, waiting up to _CLOSE_TIMEOUT_S for the broker's answer."""
        connection = self._connection
        if connection is None or connection.is_closed:
            return
        closed = asyncio.Event()
        connection.add_on_close_callback(lambda *_: closed.set())
        with contextlib.suppress(exceptions.AMQPError, TimeoutError):
            connection.close()
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await closed.wait()
