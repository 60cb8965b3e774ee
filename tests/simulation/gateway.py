"""The gateway: its shipped take-over core and history on virtual time, without sockets. It dies, and starts anew.

A connection is one client's, to one node. What is sent arrives in order, after a while. Bytes that the shipped proxy
would pass on without looking pass here, too.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextvars import Context
from typing import Any, Protocol

from coldstream.errors import ClosedLinkError, UnavailableError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.ports import Verdict
from coldstream.gateway.proxy.own_requests import OwnRequests
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import Takeover
from tests.simulation.cluster import ClusterReplica
from tests.simulation.node_connection import NodeConnection
from tests.simulation.virtual import SimulatedProcess

HOP_S = (0.001, 0.05)
TAKEN = {Key.SUBSCRIBE, Key.CREDIT, Key.UNSUBSCRIBE}
FULL_FRAMES = 4
CHUNK_HEAD = 48


class FrameClient(Protocol):
    """Who has a connection."""

    def arrived(self, frame: bytes) -> None:
        """Learn that there is a frame."""
        ...

    def cut(self) -> None:
        """Learn that the connection is lost."""
        ...


class GatewayConnection:
    """One connection. `inbox` has the frames that the client has not taken; it takes them by `take`."""

    vhost = "/"
    peer = "a client"

    def __init__(self, gateway: SimulatedGateway, client: FrameClient, replica: ClusterReplica) -> None:
        self.inbox: deque[bytes] = deque()
        self.is_over = False
        self._gateway = gateway
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._context: Context = gateway.process.context()
        self._has_room = asyncio.Event()
        self._up: deque[bytes] = deque()
        self._down: deque[bytes] = deque()
        self.node = NodeConnection(replica, self._from_node, has_stats=gateway.has_stats, version=gateway.version)
        self._own = OwnRequests(_Upstream(self), set(), lambda: False)  # type: ignore[arg-type]  # what it sends by
        link = _BrokerEnd(self, self._own)
        self._takeover = self._context.run(Takeover, self, link, gateway.history, gateway.options, gateway.figures)

    # The client's.

    def ask(self, frame: StreamFrame) -> None:
        """Send a frame of the client."""
        if not self.is_over:
            self._context.run(self._from_client, frame.to_bytes())

    def take(self) -> bytes:
        """Take the next frame."""
        frame = self.inbox.popleft()
        if not self.is_full:
            self._has_room.set()
        return frame

    def cut(self) -> None:
        """Lose the connection."""
        if not self.is_over:
            self.is_over = True
            self._gateway.connections.pop(self, None)
            self._context.run(self._own.end)
            self._context.run(self._takeover.closed)
            self._client.cut()

    # `ClientLink`.

    @property
    def is_full(self) -> bool:
        return len(self.inbox) >= FULL_FRAMES

    def send(self, *pieces: bytes) -> None:
        if not self.is_over:
            for piece in pieces:
                self.inbox.append(piece)
                self._client.arrived(piece)

    async def drained(self) -> None:
        while self.is_full:
            if self.is_over:
                raise ClosedLinkError("the client is gone")
            self._has_room.clear()
            await self._has_room.wait()

    def close(self, code: Code, reason: str) -> None:
        raise AssertionError(f"the gateway closes a connection: {code}, {reason}")

    # The way to the node, and back.

    def to_node(self, frame: bytes) -> None:
        """Send a frame to the node."""
        self._up.append(frame)
        self._loop.call_later(self._gateway.hop_s(), self._arrive_at_node, context=self._context)

    def _arrive_at_node(self) -> None:
        frame = self._up.popleft()
        if not self.is_over:
            self.node.handle(frame)

    def _from_node(self, frame: bytes) -> None:
        self._down.append(frame)
        self._loop.call_later(self._gateway.hop_s(), self._arrive_at_gateway, context=self._context)

    def _arrive_at_gateway(self) -> None:
        frame = self._down.popleft()
        if self.is_over:
            return
        key, version = key_of(frame[4:])
        if key == Key.DELIVER:
            head = memoryview(frame)[DELIVER_HEAD_BYTES[version] :][:CHUNK_HEAD]
            match self._takeover.deliver(frame[8], version, head):
                case Verdict.PASS:
                    self.send(frame)
                case Verdict.KEEP:
                    self._takeover.kept(frame[8], version, frame)
            return
        if key & ANSWER and self._own.take(key, frame):
            return
        if not self._takeover.from_broker(key, frame):
            self.send(frame)

    def _from_client(self, frame: bytes) -> None:
        key, _ = key_of(frame[4:])
        assert key in TAKEN, key
        if not self._takeover.from_client(key, frame):
            self.to_node(frame)


class _Upstream:
    """What `OwnRequests` sends by."""

    def __init__(self, connection: GatewayConnection) -> None:
        self.send = connection.to_node


class _BrokerEnd:
    """Implements `BrokerLink`."""

    vhost = "/"

    def __init__(self, connection: GatewayConnection, own: OwnRequests) -> None:
        self.send = connection.to_node
        self.request = own.request
        self._has_stats = connection.node.has_stats

    def supports(self, key: Key, version: int = 1) -> bool:
        return self._has_stats if key in {Key.STREAM_STATS, Key.CONSUMER_UPDATE} else version == 1


class SimulatedGateway:
    """The process. `history` and `figures` are those of its present life; `lives` counts them."""

    def __init__(self, rng: random.Random, table: Any, objects: Any, options: TakeoverOptions) -> None:
        self.options = options
        self.has_stats = rng.random() < 0.8
        self.version = rng.choice([1, 2])
        self.connections: dict[GatewayConnection, None] = {}  # in their order: a set's would follow from addresses
        self.totals: dict[str, int] = {}
        self.lives = 0
        self.is_running = False
        self._rng = rng
        self._table, self._objects = table, objects

    def hop_s(self) -> float:
        """Draw how long a frame takes."""
        return self._rng.uniform(*HOP_S)

    def start(self) -> None:
        """Start, if it is not there."""
        if not self.is_running:
            self.is_running = True
            self.lives += 1
            self.process = SimulatedProcess()
            self.figures = GatewayFigures()
            self.history: GatewayHistory = self.process.context().run(
                lambda: GatewayHistory(self._table, self._objects, figures=self.figures)
            )

    async def kill(self, *, gently: bool = False) -> None:
        """Die; `gently` as by SIGTERM: then nothing may be left of what it had."""
        if self.is_running:
            self.is_running = False
            for one in list(self.connections):
                one.cut()
            if gently:
                await self.history.close()
                await asyncio.sleep(1)
                left = [one for one in self.process.tasks if not one.done()]
                assert not left, f"the gateway leaves {left}"
            await self.process.kill()
            figures = self.figures
            if gently:
                assert not figures.memory_used_bytes, f"the gateway holds {figures.memory_used_bytes} bytes"
                held = figures.cold_subscriptions, figures.live_subscriptions
                assert held == (0, 0), f"the gateway counts {held} subscriptions"
            for name in ("takeovers_total", "handovers_total", "returns_total", "archive_chunks_total"):
                self.totals[name] = self.totals.get(name, 0) + getattr(figures, name)
            for action, number in figures.gaps_total.items():
                self.totals[f"gaps {action}"] = self.totals.get(f"gaps {action}", 0) + number

    def connect(self, client: FrameClient, replica: ClusterReplica) -> GatewayConnection:
        """Connect a client to a node. Raises UnavailableError if either is down."""
        if not self.is_running or replica.is_down:
            raise UnavailableError("nobody listens")
        one = GatewayConnection(self, client, replica)
        self.connections[one] = None
        return one

    def lose_node(self, replica: ClusterReplica) -> None:
        """Cut the connections to a node that died."""
        for one in list(self.connections):
            if one.node.replica is replica:
                one.cut()

    def move_leader(self) -> None:
        """Have nodes tell that the stream has another leader."""
        for one in list(self.connections):
            one.node.move_leader()

    def pump(self) -> None:
        """Have nodes deliver what has come."""
        for one in self.connections:
            one.node.pump()
