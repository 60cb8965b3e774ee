"""Proof that chunks on this disk are committed, and which stream they are of.

What a broker delivers to a consumer is committed. Two logs that hold the same chunk, of the same id and epoch, are
equal up to it, as osiris replicates the way Raft does. So if the broker delivers a chunk that is on this disk as well,
everything in that log on this disk up to it is committed, and the names that the broker was asked for are the
directory's. Nothing else is proof:

- A segment that rolled need not be committed: a leader that was lost may have rolled what the cluster never committed.
- What lies before the chunk on this disk need not be of the same log: pins outlive what the broker deletes.
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
"""After a refused login or vhost. Brokers delay that answer by seconds, and log it as a possible attack."""

LOGIN_VHOST = "/"


class BrokerProver(Protocol):
    """A broker, as far as the agent asks it for proof."""

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        """Return the first chunk that a consumer at `spec` is given; None if none came soon.

        Raises UnavailableError, StreamNotFoundError, AccessDeniedError.
        """
        ...

    async def members(self, vhost: str, name: str) -> int:
        """Return how many nodes have a replica of a stream, the leader's included. Raises what `probe` raises."""
        ...

    async def place(self, vhost: str, name: str) -> int:
        """Return which of these nodes this one is: 0 is the leader's, also if that does not show.

        Raises what `probe` raises.
        """
        ...

    async def login(self) -> None:
        """Check that the broker takes the credentials. Raises UnavailableError, LoginRefusedError."""
        ...


class ProofVerdict(Enum):
    """What a delivered chunk shows about one on this disk."""

    COMMITTED = auto()
    """It is the same chunk: everything up to it is committed."""

    NOT_YET = auto()
    """The broker does not deliver that far yet."""

    DELETED = auto()
    """The broker begins later: retention has deleted the chunk there."""

    APART = auto()
    """The broker begins later, with a chunk that this disk has in another log: nothing will ever prove ours."""

    ANOTHER = auto()
    """The broker has another chunk there: it is another stream's, or ours was never committed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdict on a chunk of ours. `chunk` is the one that was compared, which may be a later one."""

    verdict: ProofVerdict
    chunk: ChunkHeader


class Log(Protocol):
    """The chunks of a stream that the agent has on its disk."""

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk by its id."""
        ...

    async def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two of its chunks are of one log."""
        ...


def judge(ours: ChunkHeader, delivered: Chunk | None) -> ProofVerdict:
    """Compare a user chunk on this disk with what the broker delivered for its offset."""
    if delivered is None or delivered.header.next_offset <= ours.chunk_id:
        return ProofVerdict.NOT_YET
    theirs = delivered.header
    if theirs.chunk_id > ours.chunk_id and theirs.chunk_id >= ours.next_offset:
        return ProofVerdict.DELETED
    return ProofVerdict.COMMITTED if is_same(ours, theirs) else ProofVerdict.ANOTHER


class BrokerConnections:
    """Implements `BrokerProver` by one connection for each vhost, opened at the first question and again after a loss.

    All archivers share it: 10,000 streams of a vhost take one connection of the broker, not 10,000.
    """

    def __init__(self, address: BrokerAddress, metrics: AgentMetrics) -> None:
        self._address = address
        self._metrics = metrics
        self._connections: dict[str, LiveConnection] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, tuple[float, ColdstreamError]] = {}
        self._login_refused: tuple[float, LoginRefusedError] | None = None
        self._probes = asyncio.Semaphore(PROBES_AT_ONCE)

    async def probe(self, vhost: str, name: str, spec: OffsetSpec) -> Chunk | None:
        """Subscribe with a credit of one chunk."""
        return await self._ask(vhost, lambda connection: connection.probe(name, spec, timeout_s=PROBE_TIMEOUT_S))

    async def members(self, vhost: str, name: str) -> int:
        """Send the command Metadata."""
        return await self._ask(vhost, lambda connection: connection.members(name))

    async def place(self, vhost: str, name: str) -> int:
        """Send the command Metadata. The node is the one that the connection leads to."""
        return await self._ask(vhost, lambda connection: connection.place(name))

    async def _ask(self, vhost: str, question: Callable[[LiveConnection], Awaitable[_Answer]]) -> _Answer:
        # Bounded, as a connection has 256 subscriptions, and as thousands of archivers ask at once when an agent
        # starts.
        async with self._probes:
            connection = await self._connection(vhost)
            try:
                found = await question(connection)
            except UnavailableError:
                if connection.is_lost:  # else the error is about this stream alone
                    await self._drop(vhost, connection)
                raise
            self._metrics.contacted(Service.BROKER)
            return found

    async def login(self) -> None:
        """Log in to the default vhost unless a connection is open. A refused login is not repeated for a while."""
        if not any(not connection.is_lost for connection in self._connections.values()):
            with suppress(VhostRefusedError):  # a vhost is opened after the login, which therefore passed
                await self._connection(LOGIN_VHOST)
        self._metrics.contacted(Service.BROKER)

    async def close(self) -> None:
        """Close all connections."""
        for vhost, connection in list(self._connections.items()):
            await self._drop(vhost, connection)

    async def _connection(self, vhost: str) -> LiveConnection:
        # One task opens the connection, and the others that want it wait: each would open one of its own otherwise, and
        # all but the last would leak. Vhosts do not wait for each other, as a refused one takes seconds.
        async with self._opening.setdefault(vhost, asyncio.Lock()):
            if (connection := self._connections.get(vhost)) is not None:
                if not connection.is_lost:
                    return connection
                await self._drop(vhost, connection)
            # With the lock held: those that waited for an attempt that failed get its error, and do not try in turn.
            self._check_failure(vhost)
            connection = LiveConnection(self._address, vhost, name="coldstream agent")
            try:
                await connection.__aenter__()
            except ColdstreamError as failure:
                self._remember_failure(vhost, failure)
                raise
            self._failed.pop(vhost, None)
            self._login_refused = None
            self._connections[vhost] = connection
            return connection

    def _check_failure(self, vhost: str) -> None:
        """Raise the error of the last attempt again, unless that is long enough ago."""
        now = asyncio.get_running_loop().time()
        if self._login_refused is not None and now - self._login_refused[0] < RETRY_REFUSED_S:
            raise self._login_refused[1]
        if vhost in self._failed:
            at, err = self._failed[vhost]
            if now - at < (RETRY_REFUSED_S if isinstance(err, VhostRefusedError) else RETRY_CONNECT_S):
                raise err

    def _remember_failure(self, vhost: str, failure: ColdstreamError) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(failure, LoginRefusedError):
            self._login_refused = now, failure
        else:
            self._failed[vhost] = now, failure

    async def _drop(self, vhost: str, connection: LiveConnection) -> None:
        # Several tasks may see the same connection lost; only the first of them closes it. It is taken out before the
        # await, so that nobody is given a connection that is being closed.
        if self._connections.get(vhost) is connection:
            del self._connections[vhost]
            await connection.__aexit__(None, None, None)


async def prove(broker: BrokerProver, stream: StreamId, witness: ChunkHeader, log: Log) -> Proof:
    """Ask the broker for a user chunk of ours, and return the proof that its answer makes.

    If retention has deleted the chunk there, the later one that the broker delivers is compared instead. Cost: one
    chunk delivered.
    """
    delivered = await broker.probe(stream.vhost, stream.name, AtOffset(Offset(witness.chunk_id)))
    verdict = judge(witness, delivered)
    if verdict is not ProofVerdict.DELETED:
        return Proof(verdict, witness)
    assert delivered is not None
    ours = await log.find(delivered.header.chunk_id)
    if ours is None:
        return Proof(ProofVerdict.DELETED, witness)
    if not is_same(ours, delivered.header):
        return Proof(ProofVerdict.ANOTHER, ours)
    return Proof(ProofVerdict.COMMITTED if await log.is_linked(witness, ours) else ProofVerdict.APART, ours)
