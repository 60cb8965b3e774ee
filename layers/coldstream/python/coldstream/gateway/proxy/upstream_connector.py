"""Connects to one of the broker's nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from coldstream.errors import UnavailableError
from coldstream.gateway.proxy.options import Upstream
from coldstream.live.address import place_text
from coldstream.live.subscription import Place

CONNECT_TIMEOUT_S: Final = 5.0
"""For one node, TLS included."""

_AVOIDED_S = 10.0


class UpstreamConnector:
    """Takes the nodes in turn, one for each connection: a client that asks again gets another one.

    One that has just failed comes last.
    """

    def __init__(self, upstream: Upstream, *, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._upstream = upstream
        self.tls = upstream.tls
        """Replaced to have other authorities count, for connections that come."""
        self._timeout_s = timeout_s
        self._next = 0
        self._failed_at: dict[Place, float] = {}

    async def connect(self, make: Callable[[], asyncio.BaseProtocol]) -> Place:
        """Connect a protocol that `make` makes to the first node that answers; return its address.

        Raises UnavailableError if none does. Takes `timeout_s` for each node at most.
        """
        loop = asyncio.get_running_loop()
        problems: list[str] = []
        for place in self._order(loop.time()):
            host, port = place
            try:
                async with asyncio.timeout(self._timeout_s):
                    tls = self.tls
                    server_name = None if tls is None else self._upstream.server_name or host
                    await loop.create_connection(make, host, port, ssl=tls, server_hostname=server_name)
            except TimeoutError:  # before OSError, of which it is a subclass: it has no text to show
                problems.append(f"{place_text(host, port)}: no answer within {self._timeout_s:g} s")
            except (OSError, UnicodeError) as err:
                problems.append(f"{place_text(host, port)}: {err}")
            else:
                self._failed_at.pop(place, None)
                return place
            self._failed_at[place] = loop.time()
        raise UnavailableError(f"no broker to connect to: {'; '.join(problems)}")

    def _order(self, now: float) -> list[Place]:
        places = self._upstream.places
        first = self._next % len(places)
        self._next += 1
        turn = places[first:] + places[:first]
        return sorted(turn, key=lambda place: now - self._failed_at.get(place, -_AVOIDED_S) < _AVOIDED_S)
