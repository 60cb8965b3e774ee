"""A gateway as the tests of faults open it: proxy and takeover, in the loop that runs, on whatever archive."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.port import History
from coldstream.gateway.proxy.options import ProxyOptions, Upstream
from coldstream.gateway.proxy.server import GatewayServer
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import takeover_maker
from tests.gateway.faults.memory_network import HOST, MemorySocket
from tests.gateway.faults.virtual_time import VirtualLoop


class OpenedGateway:
    """A gateway that listens. `port` is where."""

    def __init__(self, server: GatewayServer) -> None:
        self.server = server
        self.port = server.place[1]

    async def close(self) -> None:
        """End it, with all connections."""
        await self.server.close()


async def open_gateway(
    broker_port: int,
    history: History,
    figures: GatewayFigures,
    *,
    takeover: TakeoverOptions | None = None,
    **options: Any,
) -> OpenedGateway:
    """Open one in front of a broker on the loopback. `options` are those of `ProxyOptions`."""
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    server = GatewayServer(
        ProxyOptions(Upstream(((HOST, broker_port),)), **options),
        takeover_maker(history, takeover or TakeoverOptions(), figures),
        figures,
        bound=cast("socket.socket", MemorySocket((HOST, 0))) if is_virtual else None,
    )
    await server.__aenter__()
    return OpenedGateway(server)
