"""Accepts connections that speak TLS: nobody hears of one before its handshake is done.

A handshake is bounded in time, and handshakes are bounded in number. If there are too many, the oldest one of the peer
that has most is broken off: whoever means it needs a moment, and whoever says nothing only gets in its own way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from coldstream.web.bounded_connections import BoundedConnections

MAX_HANDSHAKES: Final = 512
HANDSHAKE_S: Final = 10.0
SHUTDOWN_S: Final = 2.0

_ACCEPTED_AT_ONCE = 64
_NO_ROOM_PAUSE_S = 1.0
_LOG = logging.getLogger(__name__)


class TlsDoor:
    """Takes connections from a socket that listens, until `close`. `make` makes the protocol of each."""

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        max_handshakes: int = MAX_HANDSHAKES,
    ) -> None:
        self._listening = listening
        self._tls = tls
        self._make = make
        self._loop = asyncio.get_running_loop()
        # Behind a load balancer all clients have one address: a peer may have all of them.
        self._handshakes = BoundedConnections(max_handshakes, max_handshakes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        listening.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Take no connection any more. Handshakes that are under way go on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is None:
            self._loop.remove_reader(self._listening)
        else:
            self._pause.cancel()
        self._listening.close()

    async def gone(self) -> None:
        """Break off the handshakes that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as err:  # as when no descriptor is free: to ask again at once would keep a core busy
                _LOG.error("no connection can be taken for a moment: %s", err)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_NO_ROOM_PAUSE_S, self._listen)
                return
            accepted.setblocking(False)
            self._handshakes.admit(accepted, str(peer[0]))
            task = self._loop.create_task(self._greet(accepted), name="TLS handshake")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _greet(self, accepted: socket.socket) -> None:
        try:
            # Who fails is no news: port scans, health checks, clients without TLS.
            with suppress(OSError):  # an SSLError is one, and so is the end of patience
                await self._loop.connect_accepted_socket(
                    self._make,
                    accepted,
                    ssl=self._tls,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
        finally:
            self._handshakes.remove(accepted)
