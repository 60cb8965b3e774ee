"""`Farewell`: how one connection ends: what was published is confirmed, a Close is said, and the socket is closed.

Each of these within a bound, whatever the archive and the client do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from coldstream.gateway.alone.client_side import ClientSide, HoldReason
from coldstream.gateway.alone.open_frames import OpenFrames
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import Close

_LOG = logging.getLogger("coldstream.gateway.connection")
_GOODBYE_S = 5.0
_MAX_REASON = 1000


class Farewell:
    """The end of one connection. Nothing it has is served from the moment on that it is begun."""

    def __init__(self, side: ClientSide, peer: AlonePeer, frames: OpenFrames) -> None:
        self.is_begun = False
        self._side = side
        self._peer = peer
        self._frames = frames
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._confirming: asyncio.Task[None] | None = None

    def say(self, code: Code, reason: str) -> None:
        """Have what was published confirmed; then say goodbye, and end once that is answered."""
        self.is_begun = True
        self._frames.forget()
        goodbye = Close(secrets.randbits(31), code, reason[:_MAX_REASON]).to_bytes()
        if not self._frames.publishers.is_pending:
            self._say(goodbye)
            return
        self._side.hold(HoldReason.GOODBYE)
        self._confirming = asyncio.create_task(self._say_once_confirmed(goodbye))

    def leave(self) -> None:
        """Close the socket, once what was sent is on its way; at once if the client takes nothing."""
        self.is_begun = True
        self._frames.forget()
        self._side.outlet.finish()
        # What is queued is written when the frame is done that this is called for.
        self._loop.call_soon(self._shut)

    def over(self) -> None:
        """End it all: the socket is closed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._confirming is not None:
            self._confirming.cancel()

    async def _say_once_confirmed(self, goodbye: bytes) -> None:
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self._frames.publishers.settled()
        except TimeoutError:
            _LOG.warning("what was published is not durable yet", extra=self._peer.log_fields)
        self._say(goodbye)

    def _say(self, goodbye: bytes) -> None:
        """Send a last frame, and wait a moment for its answer."""
        self._side.outlet.finish(goodbye)
        self._side.let_go(*HoldReason)
        self._timer = self._loop.call_later(_GOODBYE_S, self.leave)

    def _shut(self) -> None:
        if self._side.is_lost:
            return
        self._side.transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_GOODBYE_S, self._side.transport.abort)
