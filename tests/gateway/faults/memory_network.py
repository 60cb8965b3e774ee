"""Connections without sockets, for `virtual_time.py`: bytes arrive late, in order, and in pieces of any size.

A pair of transports stands for a connection. Each counts what the other has not taken yet, pauses its writer above the
high-water mark, and is paused by its reader, as those of asyncio do.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Self

HOST = "127.0.0.1"
HIGH_BYTES = 64 << 10
MOST_PIECE_BYTES = 32 << 10
LATENCY_S = (0.0002, 0.004)
SMALL_PIECE_RATE = 0.05
"""Of pieces that arrive: so many are but a few bytes."""


class MemoryNetwork:
    """Who listens on which port, and the connections that there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int) -> None:
        self.rng = random.Random(seed)
        self.connections: dict[MemoryTransport, None] = {}  # in order: a run follows from its seed
        self._loop = loop
        self._listening: dict[int, MemoryServer] = {}
        self._next_port = 40_000

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], port: int) -> MemoryServer:
        """Listen on a port, or on a free one."""
        if not port:
            self._next_port += 1
            port = self._next_port
        if port in self._listening:
            raise OSError(98, "address in use")
        server = MemoryServer(self, factory, port)
        self._listening[port] = server
        return server

    def leave(self, port: int) -> None:
        """Listen no more."""
        self._listening.pop(port, None)

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], port: int) -> tuple[Any, Any]:
        """Connect, after a while. Raises ConnectionRefusedError where nobody listens."""
        await asyncio.sleep(self.latency_s())
        server = self._listening.get(port)
        if server is None:
            raise ConnectionRefusedError(111, f"nobody listens on {port}")
        self._next_port += 1
        here, there = MemoryTransport(self, self._next_port, port), MemoryTransport(self, port, self._next_port)
        here.peer, there.peer = there, here
        protocol = factory()
        here.begin(protocol)
        there.begin(server.factory())
        return here, protocol

    def latency_s(self) -> float:
        """Draw how long something takes."""
        return self.rng.uniform(*LATENCY_S)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """Call later."""
        self._loop.call_later(delay_s, call)


class MemoryServer:
    """What `create_server` returns."""

    def __init__(self, network: MemoryNetwork, factory: Callable[[], asyncio.BaseProtocol], port: int) -> None:
        self.factory = factory
        self.port = port
        self.sockets = (MemorySocket((HOST, port)),)
        self._network = network

    def close(self) -> None:
        """Take no more connections."""
        self._network.leave(self.port)

    def is_serving(self) -> bool:
        """Tell whether connections are taken."""
        return self._network._listening.get(self.port) is self

    async def wait_closed(self) -> None:
        """Return at once."""

    async def start_serving(self) -> None:
        """Do nothing: it serves."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class MemorySocket:
    """The little of a socket that is asked for."""

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name
        self.family = 2

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, *_: object) -> None:
        """Take it."""

    def fileno(self) -> int:
        return -1


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    peer: MemoryTransport

    def __init__(self, network: MemoryNetwork, port: int, peer_port: int) -> None:
        super().__init__()
        self._network = network
        self._names = {
            "sockname": (HOST, port),
            "peername": (HOST, peer_port),
            "socket": MemorySocket((HOST, port)),
        }
        self._protocol: Any = None
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._is_writing_paused = False
        self._is_reading = True
        self._is_closing = False
        self.is_lost = False
        self._incoming: deque[bytes] = deque()
        self._has_eof = False
        self._is_awaited = False  # a delivery to us is under way

    def begin(self, protocol: Any) -> None:
        """Tell the protocol that it is connected."""
        self._protocol = protocol
        self._network.connections[self] = None
        protocol.connection_made(self)

    # What asyncio's transports do.

    def write(self, data: Any) -> None:
        assert isinstance(data, bytes | bytearray | memoryview), data
        if self._is_closing or self.is_lost or not len(data):
            return
        self.peer._incoming.append(bytes(data))
        self.peer._await()
        self._look_at_marks()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.peer._has_eof = True
        self.peer._await()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._is_reading = False
        self._when_flushed()

    def abort(self) -> None:
        self._end(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._is_reading = True
            self._await()

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.peer._incoming))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    # How bytes come.

    def cut(self) -> None:
        """Break the connection, as a network does."""
        self._end(ConnectionResetError(104, "reset"))

    def _await(self) -> None:
        if not self._is_awaited and not self.is_lost:
            self._is_awaited = True
            self._network.later(self._network.latency_s(), self._arrive)

    def _arrive(self) -> None:
        self._is_awaited = False
        if self.is_lost or not self._is_reading:
            return
        if self._incoming:
            self._give(self._next_piece())
            if not self.peer.is_lost:
                self.peer._look_at_marks()
            if self._incoming or self._has_eof:
                self._await()
        elif self._has_eof:
            self._has_eof = False
            if not self._protocol.eof_received():
                self.close()

    def _next_piece(self) -> bytes:
        rng = self._network.rng
        most = rng.randrange(1, 10) if rng.random() < SMALL_PIECE_RATE else MOST_PIECE_BYTES
        taken = bytearray()
        while self._incoming and len(taken) < most:
            taken += self._incoming.popleft()
        if len(taken) > most:
            self._incoming.appendleft(bytes(taken[most:]))
        return bytes(taken[:most])

    def _give(self, piece: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)
            return
        while piece and not self.is_lost:
            room = memoryview(protocol.get_buffer(len(piece))).cast("B")
            size = min(len(room), len(piece))
            room[:size] = piece[:size]
            piece = piece[size:]
            protocol.buffer_updated(size)
            if piece and (not self._is_reading or self._protocol is not protocol):
                self._incoming.appendleft(piece)
                return

    def _look_at_marks(self) -> None:
        size = self.get_write_buffer_size()
        if size > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        elif size <= self._low and self._is_writing_paused:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        if self._is_closing:
            self._when_flushed()

    def _when_flushed(self) -> None:
        if not self.is_lost and not self.peer._incoming:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        self._network.connections.pop(self, None)
        self._network.later(0, lambda: self._protocol.connection_lost(error))
        peer = self.peer
        if peer.is_lost:
            return
        if error is None:
            peer._has_eof = True
            peer._await()
            # One that only listens for what comes, and does not read, learns of it by its next write at the latest.
            self._network.later(1.0, lambda: peer._end(None) if not peer._is_reading else None)
        else:
            self._network.later(self._network.latency_s(), lambda: peer._end(error))
