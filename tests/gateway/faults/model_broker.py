"""A broker that behaves as RabbitMQ does towards consumers, on streams that are lists of chunks (`model_log.py`).

It speaks the protocol on any transport of asyncio's: on sockets, and in virtual time. Everybody may log in. It serves
user chunks against credits, jumps over what retention has deleted, stores offsets in tracking chunks, and lets one
consumer of a group be active at a time.

    broker = ModelBroker()
    log = broker.declare("orders")
    server = await loop.create_server(broker.connection, "127.0.0.1", 0)
    log.write([b"one", b"two"])
    broker.pump()
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from coldstream.errors import BadFrameError
from coldstream.gateway.frames.answers import (
    ConsumerUpdate,
    CreditAnswer,
    ExchangeCommandVersionsAnswer,
    MetadataAnswer,
    MetadataUpdate,
    OffsetAnswer,
    OpenAnswer,
    PeerPropertiesAnswer,
    SaslHandshakeAnswer,
    StreamStatsAnswer,
    plain_answer,
)
from coldstream.gateway.frames.deliver import deliver_head
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import ANSWER, VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    Close,
    CloseAnswer,
    ConsumerUpdateAnswer,
    Credit,
    Metadata,
    Open,
    PeerProperties,
    QueryOffset,
    SaslHandshake,
    StoreOffset,
    StreamStats,
    Subscribe,
    Tune,
    Unsubscribe,
)
from tests.gateway.faults.model_log import ModelLog

FRAME_MAX_BYTES = 1 << 20
MOST_FRAME_BYTES = 4 << 20


@dataclass
class ModelSubscription:
    """What a broker knows of one. `next_offset` is None until a single active consumer has said from where."""

    stream: str
    credit: int
    next_offset: int | None
    every_chunk: bool = False
    group: str | None = None
    is_active: bool = True
    send_limit: int = 0
    """Nothing is sent while there is no more credit than this (RabbitMQ since 3.11)."""


@dataclass
class ModelBroker:
    """Streams and connections. `version` is what it says it is; `has_stats` is whether it knows StreamStats."""

    version: str = "4.0.5"
    has_stats: bool = True
    streams: dict[str, ModelLog] = field(default_factory=dict)
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)
    connections: list[BrokerConnection] = field(default_factory=list)
    taken: Counter[int] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)
    """Streams to which nobody may subscribe."""
    most_credit: int = 0
    """The most that any subscription had at a time."""
    port: int = 0

    def declare(self, stream: str, first_offset: int = 0) -> ModelLog:
        """Declare a stream."""
        return self.streams.setdefault(stream, ModelLog(first_offset))

    def connection(self) -> BrokerConnection:
        """Return the protocol of a new connection."""
        return BrokerConnection(self)

    def pump(self) -> None:
        """Deliver what can be delivered."""
        for connection in list(self.connections):
            connection.pump()

    def cut(self) -> None:
        """End all connections at once, as a broker does that is killed."""
        for connection in list(self.connections):
            connection.transport.abort()

    def move_leader(self, stream: str) -> None:
        """Tell who uses a stream that its leader has moved: their subscriptions end."""
        self.streams[stream].epoch += 1
        for connection in list(self.connections):
            connection.end_subscriptions(stream)

    def delete(self, stream: str) -> None:
        """Delete a stream."""
        for connection in list(self.connections):
            connection.end_subscriptions(stream)
        del self.streams[stream]
        for key in [key for key in self.offsets if key[1] == stream]:
            del self.offsets[key]

    def members(self, stream: str, group: str | None) -> list[tuple[BrokerConnection, int, ModelSubscription]]:
        """Return the subscriptions of a group to a stream, the first first."""
        return [
            (connection, subscription_id, one)
            for connection in self.connections
            for subscription_id, one in connection.subscriptions.items()
            if group is not None and one.group == group and one.stream == stream
        ]

    def elect(self, stream: str, group: str | None) -> None:
        """Make the first of a group active, if none is."""
        members = self.members(stream, group)
        if members and not any(one.is_active for *_, one in members):
            connection, subscription_id, one = members[0]
            one.is_active = True
            connection.ask_consumer(subscription_id)


class BrokerConnection(asyncio.Protocol):
    """The broker's side of one connection."""

    transport: Any

    def __init__(self, broker: ModelBroker) -> None:
        self.broker = broker
        self.subscriptions: dict[int, ModelSubscription] = {}
        self.versions: dict[int, int] = {}
        self._buffer = bytearray()
        self._is_full = False
        self._asked: dict[int, int] = {}
        self._is_open = False
        self._next_question = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.connections.remove(self)
        gone, self.subscriptions = self.subscriptions, {}
        for one in gone.values():
            self.broker.elect(one.stream, one.group)

    def pause_writing(self) -> None:
        # As RabbitMQ, which waits in its send: who takes no answers is read no further.
        self._is_full = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self.transport.resume_reading()
        self.pump()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and not self.transport.is_closing():
            size = int.from_bytes(self._buffer[:4])
            if size > MOST_FRAME_BYTES:
                self.transport.abort()
                return
            if len(self._buffer) < 4 + size:
                return
            body = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            try:
                self._take(body)
            except BadFrameError:
                self.transport.abort()

    def pump(self) -> None:
        """Deliver what credits, chunks and the socket allow."""
        for subscription_id, one in list(self.subscriptions.items()):
            log = self.broker.streams.get(one.stream)
            if one.credit <= one.send_limit:
                continue
            while log is not None and one.credit and one.is_active and one.next_offset is not None:
                if self._is_full or self.transport.is_closing():
                    return
                chunk = log.after(one.next_offset, every_chunk=one.every_chunk)
                if chunk is None:
                    break
                one.credit -= 1
                one.next_offset = chunk.header.next_offset
                version = self.versions.get(Key.DELIVER, 1)
                committed = log.chunks[-1].header.chunk_id
                head = deliver_head(version, subscription_id, committed, len(chunk.delivered))
                self.transport.write(head + chunk.delivered)

    def end_subscriptions(self, stream: str) -> None:
        """End those of a stream, and say so."""
        gone = [key for key, one in self.subscriptions.items() if one.stream == stream]
        for key in gone:
            del self.subscriptions[key]
        if gone:
            self._send(MetadataUpdate(Code.STREAM_NOT_AVAILABLE, stream))

    def ask_consumer(self, subscription_id: int) -> None:
        """Ask an active consumer from where it reads."""
        self._next_question += 1
        self._asked[self._next_question] = subscription_id
        self._send(ConsumerUpdate(self._next_question, subscription_id, 1))

    def _send(self, frame: StreamFrame | bytes) -> None:
        self.transport.write(frame if isinstance(frame, bytes) else frame.to_bytes())

    def _take(self, body: bytes) -> None:
        key, _version = key_of(body)
        self.broker.taken[key] += 1
        match key:
            case Key.PEER_PROPERTIES:
                asked = PeerProperties.from_body(body)
                self._send(PeerPropertiesAnswer(asked.correlation_id, Code.OK, {"version": self.broker.version}))
            case Key.SASL_HANDSHAKE:
                handshake = SaslHandshake.from_body(body)
                self._send(SaslHandshakeAnswer(handshake.correlation_id, Code.OK, ("PLAIN",)))
            case Key.SASL_AUTHENTICATE:
                self._send(plain_answer(Key.SASL_AUTHENTICATE, int.from_bytes(body[4:8]), Code.OK))
                self._send(Tune(FRAME_MAX_BYTES, 60))
            case Key.OPEN:
                self._is_open = True
                place = {"advertised_host": "127.0.0.1", "advertised_port": str(self.broker.port)}
                self._send(OpenAnswer(Open.from_body(body).correlation_id, Code.OK, place))
            case Key.EXCHANGE_COMMAND_VERSIONS:
                self._exchange_versions(int.from_bytes(body[4:8]))
            case Key.METADATA:
                self._tell_metadata(Metadata.from_body(body))
            case Key.CLOSE:
                self._send(CloseAnswer(Close.from_body(body).correlation_id, Code.OK))
                self.transport.close()
            case Key.TUNE | Key.HEARTBEAT:
                pass
            case _ if self._is_open:
                self._take_of_consumer(key, body)
            case _:
                self.transport.close()

    def _take_of_consumer(self, key: int, body: bytes) -> None:
        match key:
            case Key.SUBSCRIBE:
                self._subscribe(Subscribe.from_body(body))
            case Key.CREDIT:
                self._credit(Credit.from_body(body))
            case Key.UNSUBSCRIBE:
                self._unsubscribe(Unsubscribe.from_body(body))
            case Key.STORE_OFFSET:
                stored = StoreOffset.from_body(body)
                if stored.stream in self.broker.streams and stored.stream not in self.broker.refused:
                    self.broker.offsets[stored.reference, stored.stream] = stored.offset
                    self.broker.streams[stored.stream].track()
            case Key.QUERY_OFFSET:
                self._query_offset(QueryOffset.from_body(body))
            case Key.STREAM_STATS if self.broker.has_stats:
                self._tell_stats(StreamStats.from_body(body))
            case _ if key == ANSWER | Key.CONSUMER_UPDATE:
                self._begin_active(ConsumerUpdateAnswer.from_body(body))
            case _:
                # As RabbitMQ: an unknown frame ends the connection.
                self._send(Close(1, Code.UNKNOWN_FRAME, "unknown frame"))
                self.transport.close()

    def _exchange_versions(self, correlation_id: int) -> None:
        known = {key: pair for key, pair in VERSIONS.items() if self.broker.has_stats or key is not Key.STREAM_STATS}
        self.versions = {key: greatest for key, (_, greatest) in known.items()}
        commands = tuple((int(key), least, greatest) for key, (least, greatest) in known.items())
        self._send(ExchangeCommandVersionsAnswer(correlation_id, Code.OK, commands))

    def _tell_metadata(self, asked: Metadata) -> None:
        brokers = ((0, "127.0.0.1", self.broker.port),)
        streams = tuple(
            (name, Code.OK, 0, ()) if name in self.broker.streams else (name, Code.STREAM_DOES_NOT_EXIST, 0xFFFF, ())
            for name in asked.streams
        )
        self._send(MetadataAnswer(asked.correlation_id, brokers, streams))

    def _subscribe(self, asked: Subscribe) -> None:
        code = Code.OK
        if asked.stream not in self.broker.streams:
            code = Code.STREAM_DOES_NOT_EXIST
        elif asked.stream in self.broker.refused:
            code = Code.ACCESS_REFUSED
        elif asked.subscription_id in self.subscriptions:
            code = Code.SUBSCRIPTION_EXISTS
        self._send(plain_answer(Key.SUBSCRIBE, asked.correlation_id, code))
        if code != Code.OK:
            return
        log = self.broker.streams[asked.stream]
        is_single = asked.properties.get("single-active-consumer") == "true"
        group = asked.properties.get("name", "") if is_single else None
        self.subscriptions[asked.subscription_id] = ModelSubscription(
            asked.stream,
            asked.credit,
            None if is_single else log.attach(asked.spec),
            asked.properties.get("chunk_selector") == "all",
            group,
            is_active=not is_single,
            send_limit=asked.credit // 2 if self.broker.has_stats else 0,
        )
        self._remember_credit(asked.credit)
        if is_single:
            self.broker.elect(asked.stream, group)
        self.pump()

    def _credit(self, given: Credit) -> None:
        one = self.subscriptions.get(given.subscription_id)
        if one is None:
            self._send(CreditAnswer(Code.SUBSCRIPTION_DOES_NOT_EXIST, given.subscription_id))
            return
        one.credit += given.credit
        self._remember_credit(one.credit)
        self.pump()

    def _remember_credit(self, credit: int) -> None:
        self.broker.most_credit = max(self.broker.most_credit, credit)

    def _unsubscribe(self, asked: Unsubscribe) -> None:
        one = self.subscriptions.pop(asked.subscription_id, None)
        code = Code.SUBSCRIPTION_DOES_NOT_EXIST if one is None else Code.OK
        self._send(plain_answer(Key.UNSUBSCRIBE, asked.correlation_id, code))
        if one is not None:
            self.broker.elect(one.stream, one.group)

    def _query_offset(self, asked: QueryOffset) -> None:
        if asked.stream not in self.broker.streams:
            self._send(OffsetAnswer(asked.correlation_id, Code.STREAM_DOES_NOT_EXIST, 0))
            return
        if asked.stream in self.broker.refused:
            self._send(OffsetAnswer(asked.correlation_id, Code.ACCESS_REFUSED, 0))
            return
        offset = self.broker.offsets.get((asked.reference, asked.stream))
        code = Code.NO_OFFSET if offset is None else Code.OK
        self._send(OffsetAnswer(asked.correlation_id, code, offset or 0))

    def _tell_stats(self, asked: StreamStats) -> None:
        log = self.broker.streams.get(asked.stream)
        if log is None:
            self._send(StreamStatsAnswer(asked.correlation_id, Code.STREAM_DOES_NOT_EXIST, ()))
            return
        last = log.chunks[-1].header.chunk_id if log.chunks else -1
        first = log.first_offset if log.chunks else -1
        figures = (("first_chunk_id", first), ("committed_chunk_id", last), ("last_chunk_id", last))
        self._send(StreamStatsAnswer(asked.correlation_id, Code.OK, figures))

    def _begin_active(self, told: ConsumerUpdateAnswer) -> None:
        subscription_id = self._asked.pop(told.correlation_id, None)
        one = None if subscription_id is None else self.subscriptions.get(subscription_id)
        if one is None or one.stream not in self.broker.streams:
            return
        one.next_offset = self.broker.streams[one.stream].attach(told.spec)
        self.pump()
