"""One client's connection to one node: subscriptions to its replica, which are served against credits.

It behaves as RabbitMQ does (rabbit_stream_reader.erl): a request is handled to its end, chunks included, before the
next one; and nothing is sent while there is no more credit than half of the first number, since 3.11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.format.chunk import ChunkType
from coldstream.gateway.frames.answers import CreditAnswer, MetadataUpdate, StreamStatsAnswer, plain_answer
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.frames.frame import key_of
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import Credit, StreamStats, Subscribe, Unsubscribe
from coldstream.gateway.takeover.questions import EVERY_CHUNK
from coldstream.manifest.spec import NEXT
from coldstream.units import Offset
from tests.simulation.cluster import ClusterReplica

MOST_CREDIT = 256


@dataclass
class NodeSubscription:
    """One subscription. `at` is the chunk of the log that comes next, `began_at` where the node's log began then."""

    stream: str
    credit: int
    send_limit: int
    at: int
    began_at: Offset
    every_chunk: bool


class NodeConnection:
    """The node's side. `send` is called with each frame; `has_stats` is whether it knows StreamStats."""

    def __init__(
        self, replica: ClusterReplica, send: Callable[[bytes], None], *, has_stats: bool, version: int
    ) -> None:
        self.replica = replica
        self.subscriptions: dict[int, NodeSubscription] = {}
        self.has_stats = has_stats
        self.version = version
        self._send = send

    def handle(self, frame: bytes) -> None:
        """Handle one frame."""
        body = frame[4:]
        key, _ = key_of(body)
        match key:
            case Key.SUBSCRIBE:
                self._subscribe(Subscribe.from_body(body))
            case Key.CREDIT:
                self._credit(Credit.from_body(body))
            case Key.UNSUBSCRIBE:
                asked = Unsubscribe.from_body(body)
                found = self.subscriptions.pop(asked.subscription_id, None)
                code = Code.SUBSCRIPTION_DOES_NOT_EXIST if found is None else Code.OK
                self._send(plain_answer(Key.UNSUBSCRIBE, asked.correlation_id, code))
            case Key.STREAM_STATS if self.has_stats:
                here, log = self.replica.confirmed, self.replica.log
                first, last = (
                    (log[here.start].header.chunk_id, log[here.stop - 1].header.chunk_id) if here else (-1, -1)
                )
                figures = (("first_chunk_id", first), ("committed_chunk_id", last))
                asked_stats = StreamStats.from_body(body)
                self._send(StreamStatsAnswer(asked_stats.correlation_id, Code.OK, figures).to_bytes())
            case _:
                raise AssertionError(f"a node is sent a frame of key {key:#06x}")

    def pump(self) -> None:
        """Deliver what has come since."""
        for number, one in self.subscriptions.items():
            self._deliver(number, one)

    def move_leader(self) -> None:
        """Say that the stream has another leader: subscriptions end."""
        gone = {one.stream for one in self.subscriptions.values()}
        self.subscriptions.clear()
        for stream in gone:
            self._send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream).to_bytes())

    def _subscribe(self, asked: Subscribe) -> None:
        code = Code.OK
        if asked.stream != self.replica.name:
            code = Code.STREAM_DOES_NOT_EXIST
        elif asked.subscription_id in self.subscriptions:
            code = Code.SUBSCRIPTION_EXISTS
        self._send(plain_answer(Key.SUBSCRIBE, asked.correlation_id, code))
        if code == Code.OK:
            here, log = self.replica.confirmed, self.replica.log
            one = self.subscriptions[asked.subscription_id] = NodeSubscription(
                asked.stream,
                asked.credit,
                asked.credit // 2 if self.has_stats else 0,
                self.replica.attach(asked.spec or NEXT),
                Offset(log[here.start].header.chunk_id) if here else self.replica.next_offset,
                EVERY_CHUNK in asked.properties.items(),
            )
            self._deliver(asked.subscription_id, one)

    def _credit(self, given: Credit) -> None:
        one = self.subscriptions.get(given.subscription_id)
        if one is None:
            self._send(CreditAnswer(Code.SUBSCRIPTION_DOES_NOT_EXIST, given.subscription_id).to_bytes())
            return
        one.credit += given.credit
        assert one.credit <= MOST_CREDIT, f"the gateway gives {one.credit} credits"
        self._deliver(given.subscription_id, one)

    def _deliver(self, number: int, one: NodeSubscription) -> None:
        if one.credit <= one.send_limit:
            return
        here, log = self.replica.confirmed, self.replica.log
        one.at = max(one.at, here.start)  # in silence, as the broker does
        while one.credit and one.at < here.stop:
            chunk = log[one.at]
            one.at += 1
            if one.every_chunk or chunk.header.type is ChunkType.USER:
                one.credit -= 1
                head = deliver_head(self.version, number, log[here.stop - 1].header.chunk_id, len(chunk.raw))
                self._send(head + chunk.raw)
