"""The open connections of a server: bounded in number, and always with room for a new one.

If there are too many, the oldest connection of the peer that has most is broken off. So a peer that opens connections
and says nothing only gets in its own way. Many such peers get in the way of a client only if it takes longer than they
need to push it out. A peer is an IPv4 address, or the first 64 bits of an IPv6 address, as one host may use any address
below those.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

MAX_CONNECTIONS = 64
MAX_CONNECTIONS_OF_PEER = 8


class BoundedConnections:
    """The connections that are served now. Any thread may call it."""

    def __init__(self, limit: int = MAX_CONNECTIONS, limit_of_peer: int = MAX_CONNECTIONS_OF_PEER) -> None:
        self._limit = limit
        self._limit_of_peer = limit_of_peer
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[str, float]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: socket.socket, address: str) -> None:
        """Take a connection, and break another off if there are too many."""
        peer = _peer(address)
        with self._lock:
            held = Counter(other for other, _ in self._open.values())
            if held[peer] >= self._limit_of_peer:
                self._break_off_oldest(peer)
            elif len(self._open) >= self._limit:
                self._break_off_oldest(held.most_common(1)[0][0])
            self._open[connection] = peer, time.monotonic()

    def remove(self, connection: socket.socket) -> None:
        """Forget a connection that is served, or that failed."""
        with self._lock:
            self._open.pop(connection, None)

    def break_off_late(self, timeout_s: float) -> None:
        """Break off connections open for longer than that, also those that still send or read a little now and then."""
        latest = time.monotonic() - timeout_s
        with self._lock:
            for connection in [late for late, (_, since) in self._open.items() if since < latest]:
                self._break_off(connection)

    def _break_off_oldest(self, peer: str) -> None:
        self._break_off(next(connection for connection, (other, _) in self._open.items() if other == peer))

    def _break_off(self, connection: socket.socket) -> None:
        # Not closed here: its thread may be about to use the descriptor, whose number the next connection would get.
        # After the shutdown that thread finds the end of what it reads or writes, and closes the connection.
        del self._open[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _peer(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:  # noqa: PLR2004  IPv4
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped is not None else str(ipaddress.ip_network((parsed, 64), strict=False))
