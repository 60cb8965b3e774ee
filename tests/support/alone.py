"""Archive-only mode in this process, over stores in memory, and a client of raw frames."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from coldstream.gateway.alone.logins import NoPasswords, PasswordCheck
from coldstream.gateway.alone.opening import opened_alone
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.permissions import ALL, PermissionSource
from coldstream.gateway.alone.server import AloneServer
from coldstream.gateway.frames.answers import CodeAnswer, OpenAnswer
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    ExchangeCommandVersions,
    Open,
    PeerProperties,
    SaslAuthenticate,
    SaslHandshake,
    Tune,
)
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.history.port import History
from coldstream.streams import DirectArchive, FlushOptions, StreamOptions, WalOptions

HOST = "127.0.0.1"
WITHIN_S = 100.0
F = TypeVar("F", bound=StreamFrame)


class DictPasswords:
    """Users of a test."""

    def __init__(self, **users: str) -> None:
        self.users = users
        self.checks = 0

    def check(self, user: str, password: str) -> bool:
        self.checks += 1
        return self.users.get(user) == password

    def knows(self, user: str) -> bool:
        return user in self.users

    def look(self) -> None:
        """Do nothing: they are as they are."""


@dataclass
class RunningAlone:
    """A server that listens."""

    server: AloneServer
    parts: AloneParts
    port: int

    @asynccontextmanager
    async def client(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> AsyncIterator[RawClient]:
        """Have a client that has opened a vhost."""
        async with RawClient.connected(self.port) as client:
            await client.log_in(user, password, vhost)
            yield client


@asynccontextmanager
async def running_alone(
    archive: DirectArchive,
    *,
    history: History | None = None,
    passwords: PasswordCheck | None = None,
    permissions: PermissionSource = ALL,
    options: AloneOptions | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[RunningAlone]:
    """Run a server for the duration of the block."""
    options = options or AloneOptions(creates_streams=True, poll_s=0.2, turns_every_s=0.1, lease_s=1.0)
    own = None if history is not None else GatewayHistory(archive.table, archive.objects)
    known = history if own is None else own
    assert known is not None
    try:
        async with (
            opened_alone(
                archive,
                known,
                passwords or NoPasswords(),
                permissions=permissions,
                options=options,
                streams=StreamOptions(flush=FlushOptions(flush_age_s=3600), wal=WalOptions()),
            ) as parts,
            AloneServer(parts, (HOST, 0), tls=tls) as server,
        ):
            port = server.place[1]
            object.__setattr__(parts, "options", replace(options, advertised_port=port))
            yield RunningAlone(server, parts, port)
            await server.drain(1.0)
    finally:
        if own is not None:
            await own.close()


@dataclass
class RawClient:
    """Sends and takes frames."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    taken: list[bytes] = field(default_factory=list)
    correlation_id: int = 0

    @classmethod
    @asynccontextmanager
    async def connected(cls, port: int) -> AsyncIterator[Self]:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def body(self) -> bytes:
        """Return the next frame, without its length."""
        async with asyncio.timeout(WITHIN_S):
            length = struct.unpack(">I", await self.reader.readexactly(4))[0]
            return await self.reader.readexactly(length)

    async def next_of(self, key: int) -> bytes:
        """Return the next frame of a key; others are kept."""
        for at, body in enumerate(self.taken):
            if key_of(body)[0] == key:
                return self.taken.pop(at)
        while True:
            body = await self.body()
            if key_of(body)[0] == key:
                return body
            self.taken.append(body)

    async def ask(self, make: Callable[[int], StreamFrame], answer: type[F]) -> F | CodeAnswer:
        """Send a request, and return its answer; one that is refused as an `CodeAnswer`."""
        self.correlation_id += 1
        asked = make(self.correlation_id)
        self.send(asked.to_bytes())
        body = await self.next_of(asked.KEY | ANSWER)
        found = CodeAnswer.from_body(body)
        assert found.correlation_id == self.correlation_id
        return answer.from_body(body) if found.code == Code.OK else found

    async def code(self, make: Callable[[int], StreamFrame]) -> int:
        """Send a request, and return the code of its answer."""
        return (await self.ask(make, CodeAnswer)).code

    async def greet(self) -> None:
        """Come as far as the login."""
        self.send(PeerProperties(1, {"product": "test"}).to_bytes(), SaslHandshake(2).to_bytes())
        await self.next_of(Key.PEER_PROPERTIES | ANSWER)
        await self.next_of(Key.SASL_HANDSHAKE | ANSWER)

    async def authenticate(self, user: str, password: str) -> int:
        """Log in; return the code."""
        return await self.code(lambda number: SaslAuthenticate(number, "PLAIN", f"\0{user}\0{password}".encode()))

    async def log_in(
        self, user: str = "guest", password: str = "guest", vhost: str = "/", *, heartbeat_s: int = 0
    ) -> None:
        """Log in, and open a vhost."""
        await self.greet()
        assert await self.authenticate(user, password) == Code.OK
        tune = Tune.from_body(await self.next_of(Key.TUNE))
        self.send(Tune(tune.frame_max_bytes, heartbeat_s).to_bytes())
        opened = await self.ask(lambda number: Open(number, vhost), OpenAnswer)
        assert opened.code == Code.OK

    async def exchange(self) -> None:
        """Tell of all versions."""
        commands = tuple((int(key), *VERSIONS[key]) for key in VERSIONS)
        assert await self.code(lambda number: ExchangeCommandVersions(number, commands)) == Code.OK

    async def is_closed(self) -> bool:
        """Wait until the server closes the socket."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        return True


@dataclass(frozen=True)
class Delivered:
    """A chunk that was delivered."""

    subscription_id: int
    committed: int | None
    chunk: bytes

    @classmethod
    def of(cls, body: bytes) -> Delivered:
        key, version = key_of(body)
        assert key == Key.DELIVER
        if version == 1:
            return cls(body[4], None, body[5:])
        return cls(body[4], int.from_bytes(body[5:13], "big"), body[13:])


def publish(publisher_id: int, *messages: tuple[int, bytes], version: int = 1) -> bytes:
    """Return a Publish of messages with their ids."""
    middle = b"" if version == 1 else struct.pack(">h", -1)
    entries = b"".join(struct.pack(">Q", one) + middle + struct.pack(">I", len(data)) + data for one, data in messages)
    body = struct.pack(">HHBi", Key.PUBLISH, version, publisher_id, len(messages)) + entries
    return struct.pack(">I", len(body)) + body


def confirmed(body: bytes) -> tuple[int, list[int]]:
    """Return publisher and ids of a PublishConfirm."""
    publisher_id, count = struct.unpack_from(">Bi", body, 4)
    return publisher_id, list(struct.unpack_from(f">{count}Q", body, 9))


def refused(body: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Return publisher, and ids with codes, of a PublishError."""
    publisher_id, count = struct.unpack_from(">Bi", body, 4)
    return publisher_id, [struct.unpack_from(">QH", body, 9 + 10 * at) for at in range(count)]
