"""Stock clients that read through the gateway: they pause, come back after every end, and begin anew at times.

What a client is given is held against what was confirmed as it comes, and what the gateway's log says of it against
what was archived then (`gateway_log.py`).
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections import Counter
from typing import Any

from coldstream.errors import UnavailableError
from coldstream.format.chunk import CHUNK_HEADER_BYTES, ChunkHeader, ChunkType
from coldstream.gateway.frames.answers import CodeAnswer
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import ANSWER, Code, Key
from coldstream.gateway.frames.requests import Credit, Subscribe, Unsubscribe
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.simulation.archive_source import NAME
from tests.simulation.cluster import ReplicatedStream, Written
from tests.simulation.gateway import GatewayConnection, SimulatedGateway
from tests.simulation.gateway_log import Promises

AWAY_S = (1, 5, 30)


class GatewayClient:
    """A client. `position` is the offset after its last chunk; `number` its subscription's id, which no other has.

    Each confirmed message is given to it once, in order, byte for byte, unless `promises` let it be passed by.
    """

    def __init__(
        self, number: int, gateway: SimulatedGateway, stream: ReplicatedStream, rng: random.Random, promises: Promises
    ) -> None:
        self.name = f"client {number}"
        self.number = number
        self.position = Offset(0)
        self.chunks = 0
        self.passed_by = 0
        self.endings: Counter[str] = Counter()
        self.promises = promises
        self._gateway = gateway
        self._stream = stream
        self._rng = rng
        self._credit = rng.choice([1, 2, 10])
        self._credits = 0
        self._correlation = 0
        self._is_subscribed = self._is_served = False
        self._is_first = False
        self._asked_from = Offset(0)
        self._connection: GatewayConnection | None = None
        self._over = asyncio.Event()
        self._is_waking = False
        self._problem: AssertionError | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, *, anew: bool = False) -> None:
        """Start, if it is not there, at its position or at the first message."""
        if self._task is None:
            if anew:
                self.position = Offset(0)
            self._task = asyncio.create_task(self._live())

    async def kill(self) -> None:
        """End."""
        self.check()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._leave()

    def check(self) -> None:
        """Raise what is wrong."""
        if self._problem is not None:
            raise self._problem
        if self._task is not None and self._task.done():
            self._task.result()

    @property
    def lacks(self) -> int:
        """How many offsets are left to give."""
        users = [one for one in self._stream.log[-20:] if one.header.type is ChunkType.USER]
        return max(0, (users[-1].header.next_offset if users else 0) - self.position)

    @property
    def replica(self) -> Any:
        """The node's replica that it is connected to."""
        return None if self._connection is None else self._connection.node.replica

    def hop(self) -> None:
        """Unsubscribe, and subscribe again at once under the same id."""
        if self._connection is not None and self._is_subscribed:
            self._correlation += 1
            self._connection.ask(Unsubscribe(self._correlation, self.number))
            self.endings["unsubscribed"] += 1
            self._subscribe()

    # `FrameClient`.

    def arrived(self, frame: bytes) -> None:
        key, _ = key_of(frame[4:])
        if key == ANSWER | Key.SUBSCRIBE:
            self._is_served |= CodeAnswer.from_body(frame[4:]).correlation_id == self._correlation
        elif key == Key.DELIVER and self._is_served:  # else it is one of before
            self._credits -= 1
            # Now, and not when the client takes it: by then the gateway may have waited for minutes.
            self.promises.moved(self.number)
            if self._credits < 0:
                self._problem = AssertionError(f"{self.name} is given a chunk without a credit")
        if not self._is_waking:
            self._is_waking = True
            pause_s = self._rng.choice([0.1, 5, 300]) if self._rng.random() < 0.03 else 0.001
            asyncio.get_running_loop().call_later(pause_s, self._take_all)

    def cut(self) -> None:
        self._connection = None
        self._end("the connection is lost")

    async def _live(self) -> None:
        while True:
            self._over.clear()
            try:
                self._connection = self._gateway.connect(self, self._rng.choice(self._stream.replicas))
            except UnavailableError:
                pass
            else:
                self._subscribe()
                while self._connection is not None:
                    await self._over.wait()
                    self._over.clear()
                    if self._rng.random() < 0.5:
                        self._leave()
                    elif self._connection is not None:
                        await asyncio.sleep(self._rng.choice(AWAY_S))
                        self._subscribe()
            await asyncio.sleep(self._rng.choice(AWAY_S))

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cut()

    def _subscribe(self) -> None:
        if self._connection is None:
            return
        self._correlation += 1
        self._is_subscribed = self._is_served = False
        self._is_first = True
        self._credits = self._credit
        self._asked_from = self.position
        self.promises.begin(self.number)
        spec = AtOffset(self.position) if self.position else FIRST
        self._connection.ask(Subscribe(self._correlation, self.number, NAME, spec, self._credit, {}))

    def _end(self, why: str) -> None:
        self._is_subscribed = False
        self.endings[why] += 1
        self._over.set()

    def _take_all(self) -> None:
        self._is_waking = False
        try:
            while self._connection is not None and self._connection.inbox:
                self._take(self._connection, self._connection.take())
        except AssertionError as err:
            self._problem = self._problem or err

    def _take(self, connection: GatewayConnection, frame: bytes) -> None:
        body = frame[4:]
        key, version = key_of(body)
        if key == Key.DELIVER:
            if self._is_subscribed:  # else it is one of before
                assert body[4] == self.number, f"{self.name} is given a chunk of subscription {body[4]}"
                self._take_chunk(frame[DELIVER_HEAD_BYTES[version] :])
                self._credits += 1
                connection.ask(Credit(self.number, 1))
        elif key == Key.METADATA_UPDATE:
            if self._is_subscribed:
                self._end("not available any more")
        elif key == ANSWER | Key.SUBSCRIBE:
            answer = CodeAnswer.from_body(body)
            if answer.correlation_id == self._correlation:
                if answer.code == Code.OK:
                    self._is_subscribed = True
                else:
                    assert answer.code == Code.STREAM_NOT_AVAILABLE, f"{self.name} is refused: {answer.code}"
                    self._end("not available")
        else:
            assert key in {ANSWER | Key.UNSUBSCRIBE, ANSWER | Key.CREDIT}, f"{self.name} is sent a frame {key:#06x}"

    def _take_chunk(self, chunk: bytes) -> None:
        header = ChunkHeader.from_bytes(memoryview(chunk)[:CHUNK_HEADER_BYTES], source=self.name, position=0)
        told = f"{self.name} is given {header.chunk_id} of epoch {header.epoch}"
        at = bisect_left(self._stream.ids, header.chunk_id)
        log = self._stream.log
        is_there = at < len(log) and log[at].header.chunk_id == header.chunk_id
        assert is_there, f"{told}, which nobody confirmed"
        self.promises.same_bytes(log[at], chunk, told)
        if header.next_offset <= self.position:
            # A node that is behind gives smaller offsets than it was asked for, which clients leave out.
            assert self._is_first, f"{told} after {self.position}"
            return
        assert header.chunk_id >= self.position, f"{told} in the midst of what it has, up to {self.position}"
        passed_by = self._between(self.position, header.chunk_id)
        if passed_by:
            node = None if self._connection is None else self._connection.node.subscriptions.get(self.number)
            began_at = node.began_at if node is not None and self._is_first else None
            problem = self.promises.problem_of(self.number, passed_by, began_at, is_first=self._is_first)
            assert not problem, f"{told} in place of {passed_by[0].header.chunk_id}, and {problem}"
            self.passed_by += len(passed_by)
        self._is_first = False
        self.position = Offset(header.next_offset)
        self.chunks += 1

    def _between(self, begin: int, end: int) -> list[Written]:
        ids = self._stream.ids
        first = max(0, bisect_left(ids, begin + 1) - 1)
        return [
            one
            for one in self._stream.log[first : bisect_left(ids, end)]
            if one.header.type is ChunkType.USER and one.header.next_offset > begin
        ]
