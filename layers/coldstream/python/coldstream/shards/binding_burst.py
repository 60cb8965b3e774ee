"""Bindings made and removed by AMQP 0.9.1, as fast as one channel takes them.

Bindings are sent without waiting for answers, and then one request that is answered: a channel is carried out in order,
so its answer follows all of them, or an error has closed the channel. The protocol has no such form for unbinding a
queue, so that waits for an answer each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from pika import URLParameters
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel

from coldstream.errors import UnavailableError
from coldstream.replay.amqp_errors import amqp_error, amqp_parameters
from coldstream.shards.broker_port import BrokerBinding

TIMEOUT_S = 60.0
"""For one burst, connecting included."""

CLOSE_TIMEOUT_S = 2.0


class BindingBurst:
    """Binds and unbinds in one vhost. The URI's own vhost does not count. Raises InvalidSettingError for a bad URI."""

    def __init__(self, uri: str, vhost: str) -> None:
        self._parameters: URLParameters = amqp_parameters(uri)
        self._parameters.virtual_host = vhost
        self._parameters.client_properties = {"connection_name": "coldstream-shards", "product": "coldstream"}
        self._where = f"AMQP at {self._parameters.host}:{self._parameters.port}, vhost {vhost!r}"

    def bind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Make bindings, in order. Raises UnavailableError, AccessDeniedError; NotFoundError for what is not there."""

        async def send(channel: Channel, ask: _Ask) -> None:
            for one in bindings:
                call = channel.exchange_bind if one.destination_type == "exchange" else channel.queue_bind
                call(one.destination, exchange, one.routing_key, dict(one.arguments), callback=None)
            await ask(lambda done: channel.exchange_declare(exchange, passive=True, callback=done))

        self._run(send)

    def unbind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Remove bindings, in order; one that is not there is removed already. Raises as `bind`."""

        async def send(channel: Channel, ask: _Ask) -> None:
            for one in bindings:
                call = channel.exchange_unbind if one.destination_type == "exchange" else channel.queue_unbind
                named = (one.destination, exchange, one.routing_key, dict(one.arguments))
                await ask(lambda done, call=call, named=named: call(*named, callback=done))  # type: ignore[misc]

        self._run(send)

    def _run(self, send: Callable[[Channel, _Ask], Awaitable[None]]) -> None:
        try:
            asyncio.run(asyncio.wait_for(self._connected(send), TIMEOUT_S))
        except TimeoutError as err:
            raise UnavailableError(f"{self._where}: no answer within {TIMEOUT_S:g} s") from err

    async def _connected(self, send: Callable[[Channel, _Ask], Awaitable[None]]) -> None:
        """Open a connection and a channel, send, and close; whatever closes them meanwhile is the error."""
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(_: Any, error: BaseException) -> None:
            if not lost.done():
                lost.set_exception(amqp_error(error, self._where))

        async def ask(begin: Callable[[Callable[..., None]], Any]) -> Any:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def done(*found: Any) -> None:
                if not answer.done():
                    answer.set_result(found[0] if found else None)

            begin(done)
            await asyncio.wait({answer, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                lost.result()
            return answer.result()

        connection: AsyncioConnection | None = None
        try:
            connection = await ask(
                lambda done: AsyncioConnection(
                    self._parameters,
                    on_open_callback=done,
                    on_open_error_callback=fail,
                    on_close_callback=fail,
                    custom_ioloop=asyncio.get_running_loop(),
                )
            )
            assert connection is not None
            opened = connection
            channel = await ask(lambda done: opened.channel(on_open_callback=done))
            channel.add_on_close_callback(fail)
            await send(channel, ask)
        finally:
            if connection is not None and not connection.is_closed and not connection.is_closing:
                closed = asyncio.Event()  # `lost` may be done already, as by an error of the channel
                connection.add_on_close_callback(lambda *_: closed.set())
                connection.close()
                with suppress(TimeoutError):
                    await asyncio.wait_for(closed.wait(), CLOSE_TIMEOUT_S)
            if lost.done():
                lost.exception()  # taken: what it says has been raised, or is the close that was asked for


_Ask = Callable[[Callable[[Callable[..., None]], Any]], Awaitable[Any]]
