"""What servers send: answers, and what they send without a request. Fields as `fields.py` has them.

An answer with a code other than OK may end after the code: the fields after it are then empty. Decode such an answer
as `CodeAnswer` first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coldstream.gateway.frames.fields import I64, PAIRS, SPEC, TEXT, TEXTS, U8, U16, U32, U64, Field, many, together
from coldstream.gateway.frames.frame import StreamFrame
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.frames.requests import VERSION_LIST
from coldstream.manifest.spec import OffsetSpec

_BROKER_LIST = many(together(U16, TEXT, U32), least_bytes=8)
_REPLICA_LIST = many(U16, least_bytes=2)
_STREAM_LIST = many(together(TEXT, U16, U16, _REPLICA_LIST), least_bytes=10)
_STATISTICS = many(together(TEXT, I64), least_bytes=10)


@dataclass(frozen=True, slots=True)
class CodeAnswer(StreamFrame):
    """The beginning of every answer but Credit's and Metadata's, whatever its key."""

    KEY: ClassVar[int] = ANSWER | Key.OPEN
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16)

    correlation_id: int
    code: int


def plain_answer(key: Key, correlation_id: int, code: int) -> bytes:
    """Return the answer to a request whose answer has a code and nothing else, or to one that is refused."""
    out = bytearray(CodeAnswer(correlation_id, code).to_bytes())
    out[4:6] = (ANSWER | key).to_bytes(2)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class SubscribeAnswer(StreamFrame):
    """How a Subscribe went."""

    KEY: ClassVar[int] = ANSWER | Key.SUBSCRIBE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16)

    correlation_id: int
    code: int


@dataclass(frozen=True, slots=True)
class UnsubscribeAnswer(StreamFrame):
    """How an Unsubscribe went."""

    KEY: ClassVar[int] = ANSWER | Key.UNSUBSCRIBE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16)

    correlation_id: int
    code: int


@dataclass(frozen=True, slots=True)
class SequenceAnswer(StreamFrame):
    """The greatest publishing id of a reference."""

    KEY: ClassVar[int] = ANSWER | Key.QUERY_PUBLISHER_SEQUENCE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, U64)

    correlation_id: int
    code: int
    sequence: int


@dataclass(frozen=True, slots=True)
class OffsetAnswer(StreamFrame):
    """A stored offset."""

    KEY: ClassVar[int] = ANSWER | Key.QUERY_OFFSET
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, U64)

    correlation_id: int
    code: int
    offset: int


@dataclass(frozen=True, slots=True)
class CreditAnswer(StreamFrame):
    """Credit was refused."""

    KEY: ClassVar[int] = ANSWER | Key.CREDIT
    FIELDS: ClassVar[tuple[Field, ...]] = (U16, U8)

    code: int
    subscription_id: int


@dataclass(frozen=True, slots=True)
class MetadataAnswer(StreamFrame):
    """Where streams are.

    `brokers`: reference, host, port. `streams`: name, code, leader's reference, replicas' references.
    """

    KEY: ClassVar[int] = ANSWER | Key.METADATA
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, _BROKER_LIST, _STREAM_LIST)

    correlation_id: int
    brokers: tuple[tuple[int, str, int], ...]
    streams: tuple[tuple[str, int, int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class PeerPropertiesAnswer(StreamFrame):
    """Who the server is."""

    KEY: ClassVar[int] = ANSWER | Key.PEER_PROPERTIES
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, PAIRS)

    correlation_id: int
    code: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class SaslHandshakeAnswer(StreamFrame):
    """How one may log in."""

    KEY: ClassVar[int] = ANSWER | Key.SASL_HANDSHAKE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, TEXTS)

    correlation_id: int
    code: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenAnswer(StreamFrame):
    """A vhost is open."""

    KEY: ClassVar[int] = ANSWER | Key.OPEN
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, PAIRS)

    correlation_id: int
    code: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class RouteAnswer(StreamFrame):
    """The partitions of a routing key."""

    KEY: ClassVar[int] = ANSWER | Key.ROUTE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, TEXTS)

    correlation_id: int
    code: int
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAnswer(StreamFrame):
    """The partitions of a super stream. RabbitMQ 3.10 sends it without the bit of an answer."""

    KEY: ClassVar[int] = ANSWER | Key.PARTITIONS
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, TEXTS)

    correlation_id: int
    code: int
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExchangeCommandVersionsAnswer(StreamFrame):
    """Which keys the server knows in which versions: key, least, greatest."""

    KEY: ClassVar[int] = ANSWER | Key.EXCHANGE_COMMAND_VERSIONS
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, VERSION_LIST)

    correlation_id: int
    code: int
    commands: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class StreamStatsAnswer(StreamFrame):
    """The figures of a stream: name, value."""

    KEY: ClassVar[int] = ANSWER | Key.STREAM_STATS
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, _STATISTICS)

    correlation_id: int
    code: int
    figures: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ResolveOffsetSpecAnswer(StreamFrame):
    """The offset at which a spec attaches."""

    KEY: ClassVar[int] = ANSWER | Key.RESOLVE_OFFSET_SPEC
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, SPEC)

    correlation_id: int
    code: int
    spec: OffsetSpec | None


@dataclass(frozen=True, slots=True)
class MetadataUpdate(StreamFrame):
    """A stream has changed its members or is gone: its subscriptions and publishers are ended."""

    KEY: ClassVar[int] = Key.METADATA_UPDATE
    FIELDS: ClassVar[tuple[Field, ...]] = (U16, TEXT)

    code: int
    stream: str


@dataclass(frozen=True, slots=True)
class ConsumerUpdate(StreamFrame):
    """Ask a single active consumer from where on it reads, or tell it that it is not active."""

    KEY: ClassVar[int] = Key.CONSUMER_UPDATE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U8, U8)

    correlation_id: int
    subscription_id: int
    is_active: int
