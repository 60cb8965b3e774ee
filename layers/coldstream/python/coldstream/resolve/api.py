"""The bodies of the HTTP API as models: the resolver function describes its JSON by them, and its client reads it.

`bodies` writes the JSON of ranges without them, as they take long to load. Offsets and timestamps are JSON integers of
up to 64 bits. docs/openapi.json is generated from here.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from coldstream.manifest.appender import Appender, WalKind
from coldstream.manifest.appender_text import appender_json, appender_of_json
from coldstream.manifest.entry import Encoding, Gap, Head, StorageClass
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.resolve.answer import Answer, AnswerOutcome, Description, Range
from coldstream.resolve.bodies import answer_body, gap_body, stream_body
from coldstream.resolve.problem import Problem
from coldstream.store.ports import StreamPage
from coldstream.units import ByteRange, Offset, TimestampMs

OffsetNumber = Annotated[int, Field(ge=0, json_schema_extra={"format": "uint64"})]
TimestampNumber = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Count = Annotated[int, Field(ge=0)]

_STREAM: JsonDict = {"vhost": "/", "name": "orders", "incarnation": "__orders_1763700000000000000"}
_RANGE: JsonDict = {
    "bucket": "archive",
    "key": "8a8df1d4___orders_1763700000000000000/data/00000000000000000000.fragment",
    "first_offset": 0,
    "next_offset": 264193,
    "first_timestamp": 1763700000012,
    "last_timestamp": 1763700061344,
    "encoding": "identity",
    "data_bytes": 67108893,
    "url": "https://archive.s3.eu-central-1.amazonaws.com/8a8df1d4___orders_1763700000000000000/data/"
    "00000000000000000000.fragment?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-SignedHeaders=host%3Brange",
    "expires_at": 1763703661344,
    "storage_class": None,
    "erased": False,
    "first_byte": 8,
    "next_byte": 67108901,
    "range_header": "bytes=8-67108900",
    "crc32": "y5WFeQ==",
    "must_be_restored": False,
}
_GAP: JsonDict = {"first_offset": 264193, "next_offset": 528017, "reason": None}


class ApiBody(BaseModel):
    """What every body has."""

    model_config = ConfigDict(frozen=True)


class StreamBody(ApiBody):
    """One incarnation of a stream."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_STREAM]})

    vhost: str = Field(description="Virtual host")
    name: str = Field(description="Name of the stream")
    incarnation: str = Field(description="The incarnation: the name of the broker's directory for it")

    @classmethod
    def of(cls, stream: StreamId) -> Self:
        """Encode the value."""
        return cls(**stream_body(stream))

    def value(self) -> StreamId:
        """Decode the body."""
        return StreamId(self.vhost, self.name, incarnation(self.incarnation))


class StreamsBody(ApiBody):
    """A page of streams."""

    streams: list[StreamBody] = Field(description="Every incarnation of each, in no particular order")
    cursor: str | None = Field(description="Asks for the next page; null on the last page")

    @classmethod
    def of(cls, page: StreamPage) -> Self:
        """Encode the value."""
        return cls(streams=[StreamBody.of(stream) for stream in page.streams], cursor=page.cursor)

    def value(self) -> StreamPage:
        """Decode the body."""
        return StreamPage(tuple(stream.value() for stream in self.streams), self.cursor)


class GapBody(ApiBody):
    """Offsets that are not archived, between two that are; or, past the tail, offsets that are known to be lost."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_GAP]})

    first_offset: OffsetNumber
    next_offset: OffsetNumber = Field(description="The offset after the gap")
    reason: str | None = Field(description="Why they are missing; null if that is unknown, or was not looked up")

    @classmethod
    def of(cls, gap: Gap) -> Self:
        """Encode the value."""
        return cls(**gap_body(gap))

    def value(self) -> Gap:
        """Decode the body."""
        return Gap(Offset(self.first_offset), Offset(self.next_offset), self.reason)


class TailBody(ApiBody):
    """The end of the archive."""

    next_offset: OffsetNumber = Field(
        description="Read on from the broker at this offset: the one after the last archived offset or, if the query is"
        " past that, after the offsets that are known to be lost before it"
    )


class WalBody(ApiBody):
    """A write-ahead log."""

    kind: WalKind = Field(
        description="Where it is; only what is in `s3`, the archive's bucket, can be recovered by every process"
    )
    writer: str = Field(description="The process whose log it is")
    epoch: Annotated[int, Field(ge=1)] = Field(description="The writer's, which counts its logs")


class OpeningBody(ApiBody):
    """One opening of a direct stream to write, whose batches may not all be archived yet."""

    epoch: Count
    wal: WalBody = Field(description="Where its batches are before they are archived")


class AppenderBody(ApiBody):
    """Who appends to a direct stream, without a broker."""

    epoch: Count = Field(description="That of the last opening; 0 before the first")
    openings: list[OpeningBody] = Field(
        description="By epoch. The last one is open, unless its process died; without any, the stream is closed"
    )
    first: OffsetNumber = Field(description="The offset at which the stream begins")
    start: Annotated[int, Field(ge=0)] = Field(description="Offsets below this were trimmed by its writers")
    is_sealed: bool = Field(description="Whether it takes nothing any more")
    properties: dict[str, str] = Field(description="Its creator's")

    @classmethod
    def of(cls, appender: Appender) -> Self:
        """Encode the value."""
        return cls(**appender_json(appender))

    def value(self) -> Appender:
        """Decode the body."""
        return appender_of_json(self.model_dump())


_HEAD_FIELDS = (
    "first_offset",
    "next_offset",
    "first_timestamp",
    "fragments",
    "chunks",
    "records",
    "messages",
    "data_bytes",
    "object_bytes",
    "quarantined",
    "revision",
    "floor",
    "deleted_at",
    "purge_at",
)
"""What a description has from the head, by the same names."""


class DescriptionBody(ApiBody):
    """The state of a stream as a whole. Offsets and timestamps are null while nothing is archived."""

    stream: StreamBody
    first_offset: OffsetNumber | None = Field(description="The first archived offset")
    next_offset: OffsetNumber | None = Field(description="The tail: the offset after the last archived one")
    first_timestamp: TimestampNumber | None = Field(description="Of the first chunk, ms since 1970")
    last_timestamp: TimestampNumber | None = Field(description="The greatest of all chunks', ms since 1970")
    fragments: Count
    chunks: Count
    records: Count = Field(description="Archived offsets")
    messages: Count = Field(description="Records in user chunks; all others are the broker's own tracking records")
    data_bytes: Count = Field(description="Size of the chunks")
    object_bytes: Count = Field(description="Size of the fragments' objects")
    before: GapBody | None = Field(
        default=None,
        description="The offsets from the floor up to the first archived one, and why they are not archived; null if"
        " there are none, or nothing is archived",
    )
    after: GapBody | None = Field(
        default=None,
        description="The offsets from the tail on that are known to be lost: the broker continues after them; null if"
        " it continues at the tail",
    )
    gaps: list[GapBody] = Field(description="The first 100 gaps")
    gap_count: Count = Field(description="How many gaps there are")
    quarantined: Count = Field(
        description="Segments in quarantine: they failed verification, or contradict what is archived"
    )
    revision: Count = Field(description="How often the stream's manifest has changed")
    floor: OffsetNumber = Field(
        default=0, description="Offsets below this were removed from the archive, by retention or by command"
    )
    deleted_at: TimestampNumber | None = Field(
        default=None, description="When the stream was deleted, ms since 1970; null unless it is deleted"
    )
    purge_at: TimestampNumber | None = Field(
        default=None, description="Until when the deletion can be undone, ms since 1970; null unless it is deleted"
    )
    appender: AppenderBody | None = Field(
        default=None, description="Of a direct stream, which is appended to without a broker; null for a broker's"
    )

    @classmethod
    def of(cls, description: Description) -> Self:
        """Encode the value."""
        head = description.head
        return cls(
            **{name: getattr(head, name) for name in _HEAD_FIELDS},
            stream=StreamBody.of(head.stream),
            last_timestamp=head.greatest_timestamp,
            before=None if description.before is None else GapBody.of(description.before),
            after=None if description.after is None else GapBody.of(description.after),
            gaps=[GapBody.of(gap) for gap in description.gaps],
            gap_count=head.gaps,
            appender=None if head.appender is None else AppenderBody.of(head.appender),
        )

    def value(self) -> Description:
        """Decode the body."""
        head = Head(
            **{name: getattr(self, name) for name in _HEAD_FIELDS},
            stream=self.stream.value(),
            greatest_timestamp=None if self.last_timestamp is None else TimestampMs(self.last_timestamp),
            gaps=self.gap_count,
            appender=None if self.appender is None else self.appender.value(),
        )
        return Description(
            head,
            tuple(gap.value() for gap in self.gaps),
            None if self.before is None else self.before.value(),
            None if self.after is None else self.after.value(),
        )


class RangeBody(ApiBody):
    """Whole, consecutive chunks: bytes of one object."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_RANGE]})

    bucket: str
    key: str
    first_offset: OffsetNumber = Field(description="Id of the first chunk")
    next_offset: OffsetNumber = Field(description="The offset after the last record")
    first_timestamp: TimestampNumber = Field(description="Of the first chunk, ms since 1970")
    last_timestamp: TimestampNumber = Field(
        description="Of the last chunk, ms since 1970; if the range ends inside a fragment, the greatest of the"
        " fragment's chunks up to there"
    )
    encoding: Encoding = Field(
        description="How these bytes hold the chunks: `identity`, as they are; `zstd-seekable`, compressed, in whole"
        " frames that `zstd -d` decompresses to the chunks"
    )
    data_bytes: Count = Field(description="Size of the chunks, decompressed")
    url: str = Field(description="Presigned URL: GET it with the header `Range` set to exactly `range_header`")
    expires_at: TimestampNumber = Field(description="When the URL expires, ms since 1970; then ask again")
    storage_class: StorageClass | None = Field(
        default=None, description="S3's storage class of the object; null for STANDARD"
    )
    erased: bool = Field(
        default=False,
        description="True if messages of the fragment were erased on purpose: their offsets stay, without content",
    )
    first_byte: Count = Field(description="First byte, counted from the start of the object")
    next_byte: Count = Field(description="The byte after the last")
    range_header: str
    crc32: str = Field(description="CRC-32 of the whole object, as S3 returns it: big-endian, in base64")
    must_be_restored: bool = Field(
        default=False,
        description="True if the storage class is an archived one: S3 refuses the URL until the object is restored, by"
        " `coldstream restore`",
    )

    def value(self) -> Range:
        """Decode the body. Raises ValueError."""
        try:
            crc32 = int.from_bytes(b64decode(self.crc32, validate=True))
        except binascii.Error as err:
            raise ValueError(f"crc32 is not base64: {self.crc32!r}") from err
        plain = self.model_dump(exclude={"first_byte", "next_byte", "range_header", "crc32", "must_be_restored"})
        return Range(**plain, byte_range=ByteRange(self.first_byte, self.next_byte), crc32=crc32)


class AnswerBody(ApiBody):
    """The stream from the requested place on. Exactly one of `gap`, `tail` and `cursor` says what follows."""

    stream: StreamBody
    outcome: AnswerOutcome = Field(description="`ranges` if there are any, else what is there instead: `gap` or `tail`")
    ranges: list[RangeBody] = Field(
        description="In the order of their offsets; the first may begin before the requested place"
    )
    gap: GapBody | None = Field(description="The offsets after the ranges, or in their place, are not archived")
    tail: TailBody | None = Field(description="The stream after the ranges, or in their place, is only on the broker")
    cursor: str | None = Field(description="Asks for the ranges after these")
    floor: OffsetNumber | None = Field(
        default=None,
        description="Offsets below this were removed from the archive; null unless the query asks for one of them",
    )

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Encode the value."""
        return cls.model_validate(answer_body(answer))

    def value(self) -> Answer:
        """Decode the body. Raises ValueError if it contradicts itself."""
        return Answer(
            stream=self.stream.value(),
            ranges=tuple(part.value() for part in self.ranges),
            gap=None if self.gap is None else self.gap.value(),
            tail=None if self.tail is None else Offset(self.tail.next_offset),
            cursor=self.cursor,
            floor=None if self.floor is None else Offset(self.floor),
        )


class ProblemBody(ApiBody):
    """An error, by RFC 9457 (application/problem+json)."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:coldstream:problem:invalid-query",
                    "title": "The request means nothing",
                    "status": 400,
                    "detail": "offset: '-1' is not a number from 0 to 2^64 - 1",
                    "instance": "urn:coldstream:request:1f0c6a52-8b53-4f8c-9a55-1d6a38a4d6f1",
                    "field": "offset",
                }
            ]
        },
    )

    type: str = Field(description="The kind of problem: a URN, by which programs tell them apart")
    title: str = Field(description="The kind of problem, for people")
    status: int = Field(description="The HTTP status")
    detail: str = Field(description="What is wrong with this request")
    instance: str | None = Field(default=None, description="The request's name in the resolver's log")
    field: str | None = Field(default=None, description="The parameter that is wrong")

    def value(self) -> Problem:
        """Decode the body."""
        return Problem(**self.model_dump())


class GatewayBody(ApiBody):
    """An error of API Gateway, for a request that never reached the resolver."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [{"message": "Unauthorized"}]})

    message: str
