"""Listens for clients and keeps their connections, whatever is behind them: a broker or the archive."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
from functools import partial
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from coldstream.errors import InvalidSettingError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.proxy.side import ConnectionSide
from coldstream.gateway.proxy.tls_door import TlsDoor
from coldstream.live.address import place_text
from coldstream.live.subscription import Place

BACKLOG: Final = 1024
_LOG = logging.getLogger("coldstream.gateway.connection")


class ListenedConnection(Protocol):
    """A client's connection, as its listener knows it. It says once that it is over."""

    client: ConnectionSide

    @property
    def is_closing(self) -> bool:
        """Tell whether it is ending already."""

    def close(self, code: Code, reason: str) -> None:
        """Say goodbye, then end, within a bound."""

    def abort(self) -> None:
        """End at once."""


Connection = TypeVar("Connection", bound=ListenedConnection)


class GatewayListener(Generic[Connection]):
    """A server on one event loop: an asynchronous context manager, which listens from its beginning to its end.

    `bound` is a socket that listens already, in place of the address `listen`. Entering raises InvalidSettingError if
    the address cannot be taken. Whoever derives from it makes the connections, and has each call `_over` at its end.
    """

    def __init__(
        self,
        listen: Place,
        *,
        tls: ssl.SSLContext | None,
        bound: socket.socket | None,
        max_connections: int,
        figures: GatewayFigures,
    ) -> None:
        self._listen = listen
        self._tls = tls
        self._bound = bound
        self._max_connections = max_connections
        self._figures = figures
        self._numbers = itertools.count(1)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._door: TlsDoor | None = None
        self._place = listen
        self._is_empty = asyncio.Event()
        self._ended_bytes = (0, 0)

    def _connection(self, number: int) -> Connection:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        host, port = self._listen
        try:
            bound = self._bound
            if bound is None:
                infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
                bound = socket.create_server(infos[0][4][:2], family=infos[0][0], backlog=BACKLOG)
            if self._tls is None:
                self._server = await loop.create_server(self._accept, sock=bound, backlog=BACKLOG)
                self._place = self._server.sockets[0].getsockname()[:2]
            else:
                self._place = bound.getsockname()[:2]
                self._door = TlsDoor(bound, self._tls, self._accept)
        except OSError as err:
            raise InvalidSettingError("listen", f"{place_text(host, port)}: {err.strerror or err}") from err
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def place(self) -> Place:
        """The address that it listens at."""
        return self._place

    @property
    def open_connections(self) -> int:
        """How many clients have a connection."""
        return len(self._connections)

    def refresh(self) -> None:
        """Bring the bytes in the figures up to date."""
        from_clients, to_clients = self._ended_bytes
        for connection in self._connections:
            from_clients += connection.client.read_bytes
            to_clients += connection.client.sent_bytes
        self._figures.bytes_from_clients_total = from_clients
        self._figures.bytes_to_clients_total = to_clients

    def stop_listening(self) -> None:
        """Take no connection any more; those that are open stay."""
        for listening in (self._server, self._door):
            if listening is not None:
                listening.close()

    def close_some(self, count: int) -> None:
        """Tell so many of the connections that were not told yet to go, as a broker that shuts down. Does not wait."""
        open_ = [connection for connection in self._connections if not connection.is_closing]
        for connection in open_[:count]:
            connection.close(Code.OK, "the gateway shuts down")

    async def drain(self, within_s: float) -> None:
        """Stop listening, tell every connection to go, and wait until they are gone; end those that stay."""
        self.stop_listening()
        self.close_some(len(self._connections))
        try:
            async with asyncio.timeout(within_s):
                await self._gone()
        except TimeoutError:
            _LOG.warning("connections are cut off", extra={"connections": len(self._connections)})
        await self.close()

    async def close(self) -> None:
        """Stop listening, and end every connection at once."""
        self.stop_listening()
        if self._door is not None:
            await self._door.gone()
        for connection in list(self._connections):
            connection.abort()
        await self._gone()

    async def _gone(self) -> None:
        while self._connections:
            self._is_empty.clear()
            await self._is_empty.wait()

    def _accept(self) -> asyncio.BaseProtocol:
        connection = self._connection(next(self._numbers))
        # Counted once it is connected: of one that fails to speak TLS nothing more is heard.
        connection.client.admit = partial(self._admit, connection)
        return connection.client

    def _admit(self, connection: Connection) -> bool:
        if len(self._connections) >= self._max_connections:
            self._figures.refused_connections_total += 1
            return False
        self._connections.add(connection)
        self._figures.connections += 1
        self._figures.connections_total += 1
        return True

    def _over(self, connection: Connection) -> None:
        self._connections.discard(connection)
        client = connection.client
        self._ended_bytes = self._ended_bytes[0] + client.read_bytes, self._ended_bytes[1] + client.sent_bytes
        self._figures.connections -= 1
        if not self._connections:
            self._is_empty.set()
