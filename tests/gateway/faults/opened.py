"""A gateway as the tests of faults open it: proxy and takeover, in the loop that runs, on whatever archive."""

from __future__ import annotations

from typing import Any

from coldstream.gateway.figures import GatewayFigures


class OpenedGateway:
    """A gateway that listens. `port` is where."""

    def __init__(self, port: int, listener: Any) -> None:
        self.port = port
        self._listener = listener

    async def close(self) -> None:
        """End it in order."""


async def open_gateway(broker_port: int, history: Any, figures: GatewayFigures) -> OpenedGateway:
    """Open one in front of a broker on the loopback."""
    return OpenedGateway(broker_port, None)
