"""`AloneServer`: the connections of a process that answers alone. `opening.opened_alone` makes its parts."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Self

from coldstream.gateway.alone.connection import AloneConnection
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.proxy.listener import GatewayListener
from coldstream.gateway.proxy.scanner import SCRATCH_BYTES
from coldstream.live.subscription import Place

_LOG = logging.getLogger(__name__)
_TICK_S = 1.0


class AloneServer(GatewayListener[AloneConnection]):
    """Listens at `listen`, or at a socket that is `bound`. Whoever made the parts closes them, after this.

    At its end, what clients have published is appended and confirmed before they are told to go.
    """

    def __init__(
        self,
        parts: AloneParts,
        listen: Place = ("127.0.0.1", 0),
        *,
        tls: ssl.SSLContext | None = None,
        bound: socket.socket | None = None,
    ) -> None:
        super().__init__(
            listen, tls=tls, bound=bound, max_connections=parts.options.max_connections, figures=parts.figures
        )
        self._parts = parts
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._ticking = asyncio.create_task(self._tick(), name="heartbeats")
        return self

    async def close(self) -> None:
        """Stop listening, and end every connection at once."""
        if self._ticking is not None:
            self._ticking.cancel()
        await super().close()

    def _connection(self, number: int) -> AloneConnection:
        return AloneConnection(number, self._parts, self._scratch, self._over)

    async def _tick(self) -> None:
        # One timer for all connections: an idle one costs nothing but its memory.
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            for connection in tuple(self._connections):
                try:
                    connection.tick(now)
                except Exception:  # noqa: BLE001  one connection's defect must not end the heartbeats of all
                    _LOG.exception("a connection could not be looked at")
                    connection.abort()
            self._parts.host.close_idle()
