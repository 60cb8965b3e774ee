"""What clients send: requests, and what they send without waiting for an answer. Fields as `fields.py` has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coldstream.gateway.frames.fields import BLOB, PAIRS, SPEC, TEXT, TEXTS, U8, U16, U32, U64, Field, many, together
from coldstream.gateway.frames.frame import StreamFrame
from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.manifest.spec import OffsetSpec

VERSION_LIST = many(together(U16, U16, U16), least_bytes=6)


@dataclass(frozen=True, slots=True)
class DeclarePublisher(StreamFrame):
    """Declare a publisher; `reference` is None or empty without deduplication."""

    KEY: ClassVar[int] = Key.DECLARE_PUBLISHER
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U8, TEXT, TEXT)

    correlation_id: int
    publisher_id: int
    reference: str | None
    stream: str


@dataclass(frozen=True, slots=True)
class QueryPublisherSequence(StreamFrame):
    """Ask for the greatest publishing id of a reference."""

    KEY: ClassVar[int] = Key.QUERY_PUBLISHER_SEQUENCE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, TEXT)

    correlation_id: int
    reference: str
    stream: str


@dataclass(frozen=True, slots=True)
class DeletePublisher(StreamFrame):
    """End a publisher."""

    KEY: ClassVar[int] = Key.DELETE_PUBLISHER
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U8)

    correlation_id: int
    publisher_id: int


@dataclass(frozen=True, slots=True)
class Subscribe(StreamFrame):
    """Subscribe to a stream from `spec` on, with `credit` chunks at first."""

    KEY: ClassVar[int] = Key.SUBSCRIBE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U8, TEXT, SPEC, U16, PAIRS)

    correlation_id: int
    subscription_id: int
    stream: str
    spec: OffsetSpec | None
    credit: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class Credit(StreamFrame):
    """Take `credit` more chunks. Answered only if it is refused."""

    KEY: ClassVar[int] = Key.CREDIT
    FIELDS: ClassVar[tuple[Field, ...]] = (U8, U16)

    subscription_id: int
    credit: int


@dataclass(frozen=True, slots=True)
class StoreOffset(StreamFrame):
    """Store an offset under a reference. Never answered."""

    KEY: ClassVar[int] = Key.STORE_OFFSET
    FIELDS: ClassVar[tuple[Field, ...]] = (TEXT, TEXT, U64)

    reference: str
    stream: str
    offset: int


@dataclass(frozen=True, slots=True)
class QueryOffset(StreamFrame):
    """Ask for the offset that is stored under a reference."""

    KEY: ClassVar[int] = Key.QUERY_OFFSET
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, TEXT)

    correlation_id: int
    reference: str
    stream: str


@dataclass(frozen=True, slots=True)
class Unsubscribe(StreamFrame):
    """End a subscription."""

    KEY: ClassVar[int] = Key.UNSUBSCRIBE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U8)

    correlation_id: int
    subscription_id: int


@dataclass(frozen=True, slots=True)
class Create(StreamFrame):
    """Create a stream."""

    KEY: ClassVar[int] = Key.CREATE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, PAIRS)

    correlation_id: int
    stream: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Delete(StreamFrame):
    """Delete a stream."""

    KEY: ClassVar[int] = Key.DELETE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT)

    correlation_id: int
    stream: str


@dataclass(frozen=True, slots=True)
class Metadata(StreamFrame):
    """Ask where streams are."""

    KEY: ClassVar[int] = Key.METADATA
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXTS)

    correlation_id: int
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeerProperties(StreamFrame):
    """Say who one is."""

    KEY: ClassVar[int] = Key.PEER_PROPERTIES
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, PAIRS)

    correlation_id: int
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class SaslHandshake(StreamFrame):
    """Ask how to log in."""

    KEY: ClassVar[int] = Key.SASL_HANDSHAKE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32,)

    correlation_id: int


@dataclass(frozen=True, slots=True)
class SaslAuthenticate(StreamFrame):
    """Log in. `data` is a secret."""

    KEY: ClassVar[int] = Key.SASL_AUTHENTICATE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, BLOB)

    correlation_id: int
    mechanism: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Tune(StreamFrame):
    """Agree on the largest frame, in bytes, and on heartbeats, in seconds. Sent by both sides."""

    KEY: ClassVar[int] = Key.TUNE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U32)

    frame_max_bytes: int
    heartbeat_s: int


@dataclass(frozen=True, slots=True)
class Open(StreamFrame):
    """Open a vhost."""

    KEY: ClassVar[int] = Key.OPEN
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT)

    correlation_id: int
    vhost: str


@dataclass(frozen=True, slots=True)
class Close(StreamFrame):
    """End the connection. Sent by both sides."""

    KEY: ClassVar[int] = Key.CLOSE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, TEXT)

    correlation_id: int
    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class CloseAnswer(StreamFrame):
    """Agree to the end. Sent by both sides."""

    KEY: ClassVar[int] = ANSWER | Key.CLOSE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16)

    correlation_id: int
    code: int


@dataclass(frozen=True, slots=True)
class Heartbeat(StreamFrame):
    """Show that one is there. Sent by both sides."""

    KEY: ClassVar[int] = Key.HEARTBEAT
    FIELDS: ClassVar[tuple[Field, ...]] = ()


@dataclass(frozen=True, slots=True)
class Route(StreamFrame):
    """Ask which partitions a routing key leads to."""

    KEY: ClassVar[int] = Key.ROUTE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, TEXT)

    correlation_id: int
    routing_key: str
    super_stream: str


@dataclass(frozen=True, slots=True)
class Partitions(StreamFrame):
    """Ask for the partitions of a super stream."""

    KEY: ClassVar[int] = Key.PARTITIONS
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT)

    correlation_id: int
    super_stream: str


@dataclass(frozen=True, slots=True)
class ConsumerUpdateAnswer(StreamFrame):
    """Say from where on an active consumer reads."""

    KEY: ClassVar[int] = ANSWER | Key.CONSUMER_UPDATE
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, U16, SPEC)

    correlation_id: int
    code: int
    spec: OffsetSpec | None


@dataclass(frozen=True, slots=True)
class ExchangeCommandVersions(StreamFrame):
    """Say which keys one knows in which versions: key, least, greatest."""

    KEY: ClassVar[int] = Key.EXCHANGE_COMMAND_VERSIONS
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, VERSION_LIST)

    correlation_id: int
    commands: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class StreamStats(StreamFrame):
    """Ask for the figures of a stream."""

    KEY: ClassVar[int] = Key.STREAM_STATS
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT)

    correlation_id: int
    stream: str


@dataclass(frozen=True, slots=True)
class CreateSuperStream(StreamFrame):
    """Create a super stream."""

    KEY: ClassVar[int] = Key.CREATE_SUPER_STREAM
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, TEXTS, TEXTS, PAIRS)

    correlation_id: int
    name: str
    partitions: tuple[str, ...]
    binding_keys: tuple[str, ...]
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True)
class DeleteSuperStream(StreamFrame):
    """Delete a super stream."""

    KEY: ClassVar[int] = Key.DELETE_SUPER_STREAM
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT)

    correlation_id: int
    name: str


@dataclass(frozen=True, slots=True)
class ResolveOffsetSpec(StreamFrame):
    """Ask at which offset a spec attaches."""

    KEY: ClassVar[int] = Key.RESOLVE_OFFSET_SPEC
    FIELDS: ClassVar[tuple[Field, ...]] = (U32, TEXT, SPEC, PAIRS)

    correlation_id: int
    stream: str
    spec: OffsetSpec | None
    properties: dict[str, str]
