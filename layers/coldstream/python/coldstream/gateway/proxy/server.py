"""Listens for clients, and has a connection to the broker for each of them."""

from __future__ import annotations

import socket
import ssl

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.ports import MakeInterceptor
from coldstream.gateway.proxy.connection import ConnectionParts, ProxiedConnection
from coldstream.gateway.proxy.listener import GatewayListener
from coldstream.gateway.proxy.null_interceptor import NullInterceptor
from coldstream.gateway.proxy.options import ProxyOptions
from coldstream.gateway.proxy.scanner import SCRATCH_BYTES
from coldstream.gateway.proxy.upstream_connector import UpstreamConnector


class GatewayServer(GatewayListener[ProxiedConnection]):
    """The proxy on one event loop. `make` gives each connection what takes over its subscriptions."""

    def __init__(
        self,
        options: ProxyOptions,
        make: MakeInterceptor = NullInterceptor,
        figures: GatewayFigures | None = None,
        *,
        bound: socket.socket | None = None,
    ) -> None:
        figures = GatewayFigures() if figures is None else figures
        super().__init__(
            options.listen, tls=options.tls, bound=bound, max_connections=options.max_connections, figures=figures
        )
        self._connector = UpstreamConnector(options.upstream)
        self._parts = ConnectionParts(
            options,
            make,
            figures,
            self._connector,
            memoryview(bytearray(SCRATCH_BYTES)),
            self._over,
        )

    def renew_upstream_tls(self, tls: ssl.SSLContext) -> None:
        """Speak TLS to the broker by another context, for connections that come."""
        self._connector.tls = tls

    def _connection(self, number: int) -> ProxiedConnection:
        return ProxiedConnection(number, self._parts)
