"""A client that sends what it is told to, byte for byte, and reads only when it is told to.

    async with RawClient(port) as client:
        await client.login()
        await client.ask(Subscribe(client.next_id(), 0, "orders", FIRST, 10, {}))
        body = await client.until(Key.DELIVER)

It works on sockets and in virtual time alike. What it reads while it waits for something else is kept in `passed`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from coldstream.gateway.frames.answers import CodeAnswer, ExchangeCommandVersionsAnswer
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    ExchangeCommandVersions,
    Open,
    PeerProperties,
    SaslAuthenticate,
    SaslHandshake,
    Tune,
)

HOST = "127.0.0.1"
PATIENCE_S = 20.0
MOST_PASSED = 100_000


class ConnectionGoneError(Exception):
    """The other side has ended the connection."""


class RefusedError(Exception):
    """A request was answered with another code than OK."""

    def __init__(self, key: int, code: int) -> None:
        self.code = code
        super().__init__(f"{Key(key & ~ANSWER).name}: {code}")


class RawClient:
    """See the module. `limit_bytes` bounds what is read from the socket ahead of the caller."""

    def __init__(
        self,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        patience_s: float = PATIENCE_S,
        limit_bytes: int = 1 << 16,
    ) -> None:
        self.port = port
        self.passed: deque[bytes] = deque(maxlen=MOST_PASSED)
        self.delivers_2 = False
        self._ssl_context = ssl_context
        self._patience_s = patience_s
        self._limit_bytes = limit_bytes
        self._correlation = 0
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(self._patience_s):
            self.reader, self.writer = await asyncio.open_connection(
                HOST, self.port, ssl=self._ssl_context, limit=self._limit_bytes
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        with suppress(OSError):
            await self.writer.wait_closed()

    def next_id(self) -> int:
        """Return a new correlation id."""
        self._correlation += 1
        return self._correlation

    def cut(self) -> None:
        """End the connection without a word."""
        self.writer.transport.abort()

    def send(self, *frames: StreamFrame | bytes) -> None:
        """Queue frames, or any bytes."""
        self.writer.writelines([one if isinstance(one, bytes) else one.to_bytes() for one in frames])

    async def flush(self) -> None:
        """Wait until the other side has taken most of what was sent. Raises ConnectionGoneError."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self.writer.drain()
        except OSError as err:
            raise ConnectionGoneError from err

    async def body(self) -> bytes:
        """Read the next frame, without its length. Raises ConnectionGoneError, or TimeoutError."""
        try:
            async with asyncio.timeout(self._patience_s):
                size = int.from_bytes(await self.reader.readexactly(4))
                return await self.reader.readexactly(size)
        except TimeoutError:
            raise
        except (asyncio.IncompleteReadError, OSError) as err:
            raise ConnectionGoneError from err

    async def until(self, key: int) -> bytes:
        """Read up to a frame of that key; keep the others in `passed`, answers to heartbeats aside."""
        while True:
            body = await self.body()
            if key_of(body)[0] == key:
                return body
            self.passed.append(body)

    async def ask(self, frame: StreamFrame) -> CodeAnswer:
        """Send a request and read up to its answer. Raises RefusedError."""
        self.send(frame)
        number = frame.to_bytes()[8:12]
        while (body := await self.until(ANSWER | frame.KEY))[4:8] != number:
            self.passed.append(body)
        answer = CodeAnswer.from_body(body)
        if answer.code != Code.OK:
            raise RefusedError(frame.KEY, answer.code)
        return answer

    async def login(self, vhost: str = "/", *, heartbeat_s: int = 0, with_versions: bool = True) -> None:
        """Do everything up to Open, and exchange versions as newer clients do."""
        await self.ask(PeerProperties(self.next_id(), {"product": "raw client"}))
        await self.ask(SaslHandshake(self.next_id()))
        self.send(SaslAuthenticate(self.next_id(), "PLAIN", b"\0guest\0guest"))
        answer = CodeAnswer.from_body(await self.until(ANSWER | Key.SASL_AUTHENTICATE))
        if answer.code != Code.OK:
            raise RefusedError(Key.SASL_AUTHENTICATE, answer.code)
        tune = Tune.from_body(await self.until(Key.TUNE))
        self.send(Tune(tune.frame_max_bytes, heartbeat_s))
        await self.ask(Open(self.next_id(), vhost))
        if with_versions:
            await self.exchange_versions()

    async def exchange_versions(self) -> None:
        """Tell which versions it knows, and note whether delivers come in version 2."""
        commands = tuple((int(key), *pair) for key, pair in VERSIONS.items())
        self.send(ExchangeCommandVersions(self.next_id(), commands))
        body = await self.until(ANSWER | Key.EXCHANGE_COMMAND_VERSIONS)
        theirs = ExchangeCommandVersionsAnswer.from_body(body).commands
        self.delivers_2 = any(key == Key.DELIVER and greatest >= 2 for key, _, greatest in theirs)

    async def close(self) -> None:
        """Say goodbye, and wait for the answer."""
        self.send(Close(self.next_id(), Code.OK, "done"))
        await self.until(ANSWER | Key.CLOSE)

    async def is_ended(self) -> bool:
        """Read all that comes, and tell whether the other side then ends the connection in time."""
        try:
            while True:
                self.passed.append(await self.body())
        except ConnectionGoneError:
            return True
        except TimeoutError:
            return False


def delivered(body: bytes) -> tuple[int, bytes]:
    """Return a Deliver's subscription id and chunk, whatever its version."""
    _, version = key_of(body)
    return body[4], body[5 if version == 1 else 13 :]
