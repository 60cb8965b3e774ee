"""`AloneServer`: listens, keeps the connections, and ends orderly. `open_alone` makes one with all of its parts."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable

from coldstream.gateway.alone.connection import AloneConnection
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.socket_link import SocketLink

_LOG = logging.getLogger(__name__)
_TICK_S = 1.0
_LOGIN_TLS_S = 10.0


class AloneServer:
    """The connections of one process. Whoever made the parts closes them, after this."""

    def __init__(self, parts: AloneParts) -> None:
        self._parts = parts
        self._connections: set[AloneConnection] = set()
        self._servers: list[asyncio.Server] = []
        self._leaving: dict[AloneConnection, asyncio.Task[None]] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._is_draining = False
        self._all_gone = asyncio.Event()

    def __len__(self) -> int:
        return len(self._connections)

    async def listen(
        self, host: str, port: int, *, ssl_context: ssl.SSLContext | None = None, reuse_port: bool = False
    ) -> int:
        """Listen at an address; return the port. Raises OSError."""
        server = await asyncio.get_running_loop().create_server(
            self._accept,
            host,
            port,
            ssl=ssl_context,
            ssl_handshake_timeout=None if ssl_context is None else _LOGIN_TLS_S,
            reuse_port=reuse_port or None,
            backlog=1024,
        )
        return self._serve(server)

    async def listen_on(self, bound: socket.socket, *, ssl_context: ssl.SSLContext | None = None) -> int:
        """Listen at a socket that is bound; return the port."""
        server = await asyncio.get_running_loop().create_server(
            self._accept,
            sock=bound,
            ssl=ssl_context,
            ssl_handshake_timeout=None if ssl_context is None else _LOGIN_TLS_S,
            backlog=1024,
        )
        return self._serve(server)

    @property
    def open_connections(self) -> int:
        """How many clients have a connection."""
        return len(self._connections)

    def stop_listening(self) -> None:
        """Take no connection any more; those that are open stay."""
        self._is_draining = True
        for server in self._servers:
            server.close()

    def close_some(self, share: float) -> None:
        """Ask this share of the clients, 0 to 1, to leave, once what they published is appended. Does not wait."""
        count = math.ceil(share * len(self._connections))
        for connection in [one for one in self._connections if one not in self._leaving][:count]:
            self._leaving[connection] = asyncio.create_task(self._let_go(connection), name="letting a client go")

    async def _let_go(self, connection: AloneConnection) -> None:
        # Confirms first: what is published is appended, and the client should know.
        await connection.settled()
        connection.drain()

    async def drain(self, within_s: float) -> None:
        """Take no connection any more, ask clients to leave, wait for what they published; then close what is left."""
        self.stop_listening()
        try:
            async with asyncio.timeout(within_s):
                self.close_some(1.0)
                while self._connections:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            _LOG.warning("%s connections did not end in time", len(self._connections))
        for connection in tuple(self._connections):
            connection.abort()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait([self._ticking])
        await asyncio.sleep(0)  # for what the transports have to call

    def _serve(self, server: asyncio.Server) -> int:
        self._servers.append(server)
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="heartbeats")
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _accept(self) -> SocketLink:
        return _AcceptedLink(self._begin)

    def _begin(self, link: SocketLink) -> None:
        figures = self._parts.figures
        if self._is_draining or len(self._connections) >= self._parts.options.max_connections:
            figures.refused_connections_total += 1
            link.abort()
            return
        connection = AloneConnection(self._parts, link, self._ended)
        self._connections.add(connection)
        figures.connections += 1
        figures.connections_total += 1
        link.begin(connection)

    def _ended(self, connection: AloneConnection) -> None:
        self._connections.discard(connection)
        letting_go = self._leaving.pop(connection, None)
        if letting_go is not None:
            letting_go.cancel()
        self._parts.figures.connections -= 1
        if not self._connections:
            self._all_gone.set()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            for connection in tuple(self._connections):
                connection.tick(now)
            self._parts.host.close_idle()


class _AcceptedLink(SocketLink):
    """A link that says when it is connected."""

    def __init__(self, on_begin: Callable[[SocketLink], None]) -> None:
        super().__init__()
        self._on_begin = on_begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and say so."""
        super().connection_made(transport)
        self._on_begin(self)
