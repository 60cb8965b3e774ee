"""A client of the stream protocol that sends exactly what a test says, and takes whole frames."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Self

from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.frame import StreamFrame
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.frames.requests import Open, PeerProperties, SaslAuthenticate, SaslHandshake, Tune
from coldstream.gateway.ports import AnswerFrame
from coldstream.live.subscription import Place

TIMEOUT_S = 20


class RawStreamClient:
    """One connection, closed without a word at the end."""

    def __init__(self, place: Place, tls: ssl.SSLContext | None = None, *, limit: int = 1 << 20) -> None:
        self._place = place
        self._tls = tls
        self._limit = limit

    async def __aenter__(self) -> Self:
        host, port = self._place
        self.reader, self.writer = await asyncio.open_connection(host, port, ssl=self._tls, limit=self._limit)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    def send(self, *frames: StreamFrame | bytes) -> None:
        """Send frames, or any bytes."""
        self.writer.write(b"".join(frame if isinstance(frame, bytes) else frame.to_bytes() for frame in frames))

    async def frame(self) -> bytes:
        """Return the next frame, with its length; nothing at the end. Heartbeats are left out."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    head = await self.reader.readexactly(4)
                    frame = head + await self.reader.readexactly(int.from_bytes(head))
                    if frame[4:6] != int(Key.HEARTBEAT).to_bytes(2):
                        return frame
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def take(self, kind: type[AnswerFrame]) -> AnswerFrame:
        """Return the next frame, which is of a type."""
        frame = await self.frame()
        assert frame[4:6] == kind.KEY.to_bytes(2), frame[:80]
        return kind.from_body(frame[4:])

    async def code(self, key: Key) -> int:
        """Return the code of the next frame, an answer to a request of that key."""
        frame = await self.frame()
        assert frame[4:6] == (ANSWER | key).to_bytes(2), frame[:80]
        return CodeAnswer.from_body(frame[4:]).code

    async def ended(self) -> bool:
        """Wait for the end; tell whether nothing came before it."""
        return await self.frame() == b""

    async def open(self, *, user: str = "guest", password: str = "guest", vhost: str = "/", name: str = "raw") -> None:
        """Do all that is done before requests, as clients do it."""
        self.send(PeerProperties(1, {"product": "test", "connection_name": name}))
        assert await self.code(Key.PEER_PROPERTIES) == 1
        self.send(SaslHandshake(2))
        assert await self.code(Key.SASL_HANDSHAKE) == 1
        self.send(SaslAuthenticate(3, "PLAIN", f"\0{user}\0{password}".encode()))
        assert await self.code(Key.SASL_AUTHENTICATE) == 1
        tune = await self.take(Tune)
        # No heartbeats: a test that does something else meanwhile answers none, and would be cut off after two minutes.
        self.send(Tune(tune.frame_max_bytes, 0), Open(4, vhost))
        assert await self.code(Key.OPEN) == 1
