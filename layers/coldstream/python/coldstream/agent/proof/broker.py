"""Proof that chunks on this disk are committed, and which stream they are of.

What a broker delivers to a consumer is committed. Two logs that hold the same chunk, of the same id and epoch, are
equal up to it (osiris replicates as Raft does). So where the broker delivers a chunk that stands on this disk just so,
everything on this disk up to it is committed, and the names that it was asked for by are the directory's. Nothing else
is believed: not that a segment rolled, for a leader that was lost may have rolled what the cluster never committed; nor
that what stands before it on this disk is of the same log, for pins of what the broker has deleted need not be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

from coldstream.agent.monitor.metrics import AgentMetrics, Service
from coldstream.errors import ColdstreamError, LoginRefusedError, UnavailableError, VhostRefusedError
from coldstream.format.chunk import Chunk, ChunkHeader
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import AtOffset, OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.units import ChunkId, Offset

_Answer = TypeVar("_Answer")

PROBE_TIMEOUT_S = 3.0
PROBES_AT_ONCE = 32
RETRY_CONNECT_S = 1.0
RETRY_REFUSED_S = 15.0
"""A broker answers a login or a vhost that it refuses only after seconds, and logs it as an attack might be."""

LOGIN_VHOST = "/"


class BrokerProver(Protocol):
    """What the agent asks of a broker."""

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        """Return the first chunk that a consumer at `spec` is given; None when none came soon.

        Raises UnavailableError, StreamNotFoundError, AccessDeniedError.
        """
        ...

    async def members(self, vhost: str, name: str) -> int:
        """Return on how many nodes a stream is. Raises what `probe` raises."""
        ...

    async def login(self) -> None:
        """See that it takes the credentials. Raises UnavailableError, LoginRefusedError."""
        ...


class Verdict(Enum):
    """What a delivered chunk says of one on this disk."""

    COMMITTED = auto()
    """It is the same: all up to it is committed."""

    NOT_YET = auto()
    """The broker has not got so far."""

    DELETED = auto()
    """The broker begins later: retention has deleted it."""

    APART = auto()
    """The broker begins later, with a chunk that is on this disk too, in another log: nothing will ever prove it."""

    ANOTHER = auto()
    """The broker has another chunk there: of another stream, or what is on this disk was never committed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was learned of the chunk that was asked for. `chunk` is ours that was compared; ANOTHER is said of it."""

    verdict: Verdict
    chunk: ChunkHeader


class Log(Protocol):
    """What the agent has on its disk of a stream."""

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk by its id."""
        ...

    async def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two chunks that it has are of one log."""
        ...


def judge(ours: ChunkHeader, delivered: Chunk | None) -> Verdict:
    """Compare a user chunk on this disk with what the broker delivered for its offset."""
    if delivered is None or delivered.header.next_offset <= ours.chunk_id:
        return Verdict.NOT_YET
    theirs = delivered.header
    if theirs.chunk_id > ours.chunk_id and theirs.chunk_id >= ours.next_offset:
        return Verdict.DELETED
    return Verdict.COMMITTED if is_same(ours, theirs) else Verdict.ANOTHER


class BrokerConnections:
    """Implements `Broker` over one connection a vhost, opened when it is asked for, and again after it broke."""

    def __init__(self, address: BrokerAddress, metrics: AgentMetrics) -> None:
        self._address = address
        self._metrics = metrics
        self._connections: dict[str, LiveConnection] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, tuple[float, ColdstreamError]] = {}
        self._login_refused: tuple[float, LoginRefusedError] | None = None
        self._probes = asyncio.Semaphore(PROBES_AT_ONCE)

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        """Ask by a consumer with a credit of one chunk."""
        return await self._ask(vhost, lambda connection: connection.probe(name, spec, timeout_s=PROBE_TIMEOUT_S))

    async def members(self, vhost: str, name: str) -> int:
        """Ask by the command Metadata."""
        return await self._ask(vhost, lambda connection: connection.members(name))

    async def _ask(self, vhost: str, question: Callable[[LiveConnection], Awaitable[_Answer]]) -> _Answer:
        async with self._probes:
            connection = await self._connection(vhost)
            try:
                found = await question(connection)
            except UnavailableError:
                if connection.is_lost:  # else it is about the stream alone
                    await self._drop(vhost, connection)
                raise
            self._metrics.contacted(Service.BROKER)
            return found

    async def login(self) -> None:
        """Log in to the default vhost, unless a connection is open; what is refused is not asked for again at once."""
        if not any(not connection.is_lost for connection in self._connections.values()):
            with suppress(VhostRefusedError):  # which comes after the login
                await self._connection(LOGIN_VHOST)
        self._metrics.contacted(Service.BROKER)

    async def close(self) -> None:
        """Close all connections."""
        for vhost, connection in list(self._connections.items()):
            await self._drop(vhost, connection)

    async def _connection(self, vhost: str) -> LiveConnection:
        async with self._opening.setdefault(vhost, asyncio.Lock()):
            if (connection := self._connections.get(vhost)) is not None:
                if not connection.is_lost:
                    return connection
                await self._drop(vhost, connection)
            self._check_refused(vhost)
            connection = LiveConnection(self._address, vhost, name="coldstream agent")
            try:
                await connection.__aenter__()
            except ColdstreamError as failure:
                self._refused(vhost, failure)
                raise
            self._failed.pop(vhost, None)
            self._login_refused = None
            self._connections[vhost] = connection
            return connection

    def _check_refused(self, vhost: str) -> None:
        """Raise what came of the last attempt, unless it is long enough ago."""
        now = asyncio.get_running_loop().time()
        if self._login_refused is not None and now - self._login_refused[0] < RETRY_REFUSED_S:
            raise self._login_refused[1]
        if vhost in self._failed:
            at, err = self._failed[vhost]
            if now - at < (RETRY_REFUSED_S if isinstance(err, VhostRefusedError) else RETRY_CONNECT_S):
                raise err

    def _refused(self, vhost: str, failure: ColdstreamError) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(failure, LoginRefusedError):
            self._login_refused = now, failure
        else:
            self._failed[vhost] = now, failure

    async def _drop(self, vhost: str, connection: LiveConnection) -> None:
        if self._connections.get(vhost) is connection:
            del self._connections[vhost]
            await connection.__aexit__(None, None, None)


async def prove(broker: BrokerProver, stream: StreamId, witness: ChunkHeader, log: Log) -> Proof:
    """Ask the broker for a user chunk of ours, and return what that says.

    Where retention has deleted it, the later chunk that the broker delivered is compared instead. Cost: one chunk
    delivered.
    """
    delivered = await broker.probe(stream.vhost, stream.name, AtOffset(Offset(witness.chunk_id)))
    verdict = judge(witness, delivered)
    if verdict is not Verdict.DELETED:
        return Proof(verdict, witness)
    assert delivered is not None
    ours = await log.find(delivered.header.chunk_id)
    if ours is None:
        return Proof(Verdict.DELETED, witness)
    if not is_same(ours, delivered.header):
        return Proof(Verdict.ANOTHER, ours)
    return Proof(Verdict.COMMITTED if await log.is_linked(witness, ours) else Verdict.APART, ours)
