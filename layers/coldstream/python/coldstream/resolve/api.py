"""The bodies of the HTTP API, as JSON has them: what the resolver function describes and its client reads.

`bodies` writes those that a function's first answer is made of.

Offsets and timestamps are JSON integers of up to 64 bits. docs/openapi.json is generated from here.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from coldstream.manifest.entry import Encoding, Gap, Head
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
    "first_byte": 8,
    "next_byte": 67108901,
    "first_offset": 0,
    "next_offset": 264193,
    "first_timestamp": 1763700000012,
    "last_timestamp": 1763700061344,
    "encoding": "identity",
    "data_bytes": 67108893,
    "crc32": "y5WFeQ==",
    "url": "https://archive.s3.eu-central-1.amazonaws.com/8a8df1d4___orders_1763700000000000000/data/"
    "00000000000000000000.fragment?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-SignedHeaders=host%3Brange",
    "range_header": "bytes=8-67108900",
    "expires_at": 1763703661344,
}
_GAP: JsonDict = {"first_offset": 264193, "next_offset": 528017, "reason": None}


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True)


class StreamBody(_Body):
    """A stream, in one of its lives."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_STREAM]})

    vhost: str = Field(description="Virtual host")
    name: str = Field(description="Name of the stream")
    incarnation: str = Field(description="This life of the stream: the name of the broker's directory for it")

    @classmethod
    def of(cls, stream: StreamId) -> Self:
        """Make the body."""
        return cls(**stream_body(stream))

    def value(self) -> StreamId:
        """Read the body."""
        return StreamId(self.vhost, self.name, incarnation(self.incarnation))


class StreamsBody(_Body):
    """Some of the streams."""

    streams: list[StreamBody] = Field(description="Every incarnation of each, in no particular order")
    cursor: str | None = Field(description="Asks for the streams after these; null when there are no more")

    @classmethod
    def of(cls, page: StreamPage) -> Self:
        """Make the body."""
        return cls(streams=[StreamBody.of(stream) for stream in page.streams], cursor=page.cursor)

    def value(self) -> StreamPage:
        """Read the body."""
        return StreamPage(tuple(stream.value() for stream in self.streams), self.cursor)


class GapBody(_Body):
    """Offsets that are not archived, between two that are; past the tail, offsets that are known to be lost."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_GAP]})

    first_offset: OffsetNumber
    next_offset: OffsetNumber = Field(description="The offset after the gap")
    reason: str | None = Field(description="Why they are missing; null where that is not known, or not looked up")

    @classmethod
    def of(cls, gap: Gap) -> Self:
        """Make the body."""
        return cls(**gap_body(gap))

    def value(self) -> Gap:
        """Read the body."""
        return Gap(Offset(self.first_offset), Offset(self.next_offset), self.reason)


class TailBody(_Body):
    """Where the archive ends."""

    next_offset: OffsetNumber = Field(
        description="The offset after the last archived one, or, where what was asked for is past that, after what is"
        " known to be lost before it: read on from the broker"
    )


class DescriptionBody(_Body):
    """The state of a stream as a whole. Offsets and timestamps are null while nothing is archived."""

    stream: StreamBody
    first_offset: OffsetNumber | None = Field(description="The first archived offset")
    next_offset: OffsetNumber | None = Field(description="The tail: the offset after the last archived one")
    first_timestamp: TimestampNumber | None = Field(description="Of the first chunk, ms since 1970")
    last_timestamp: TimestampNumber | None = Field(description="The greatest of all chunks, ms since 1970")
    fragments: Count
    chunks: Count
    records: Count = Field(description="Archived offsets")
    messages: Count = Field(description="Those in user chunks; the others are the broker's own tracking records")
    data_bytes: Count = Field(description="Size of the chunks")
    object_bytes: Count = Field(description="Size of the fragments' objects")
    before: GapBody | None = Field(
        default=None,
        description="The offsets before the first archived one, and why they are not archived; null where there are"
        " none, or nothing is archived",
    )
    after: GapBody | None = Field(
        default=None,
        description="The offsets right behind the tail, where it is known that they are lost: the broker goes on after"
        " them; null where it goes on at the tail",
    )
    gaps: list[GapBody] = Field(description="The first 100 gaps")
    gap_count: Count = Field(description="All gaps")
    quarantined: Count = Field(description="Segments that failed verification and were set aside")
    revision: Count = Field(description="Changes to the stream's manifest so far")

    @classmethod
    def of(cls, description: Description) -> Self:
        """Make the body."""
        head = description.head
        return cls(
            stream=StreamBody.of(head.stream),
            first_offset=head.first_offset,
            next_offset=head.next_offset,
            first_timestamp=head.first_timestamp,
            last_timestamp=head.greatest_timestamp,
            fragments=head.fragments,
            chunks=head.chunks,
            records=head.records,
            messages=head.messages,
            data_bytes=head.data_bytes,
            object_bytes=head.object_bytes,
            before=None if description.before is None else GapBody.of(description.before),
            after=None if description.after is None else GapBody.of(description.after),
            gaps=[GapBody.of(gap) for gap in description.gaps],
            gap_count=head.gaps,
            quarantined=head.quarantined,
            revision=head.revision,
        )

    def value(self) -> Description:
        """Read the body."""
        head = Head(
            stream=self.stream.value(),
            revision=self.revision,
            first_offset=None if self.first_offset is None else Offset(self.first_offset),
            next_offset=None if self.next_offset is None else Offset(self.next_offset),
            first_timestamp=None if self.first_timestamp is None else TimestampMs(self.first_timestamp),
            greatest_timestamp=None if self.last_timestamp is None else TimestampMs(self.last_timestamp),
            fragments=self.fragments,
            chunks=self.chunks,
            records=self.records,
            messages=self.messages,
            data_bytes=self.data_bytes,
            object_bytes=self.object_bytes,
            gaps=self.gap_count,
            quarantined=self.quarantined,
        )
        return Description(
            head,
            tuple(gap.value() for gap in self.gaps),
            None if self.before is None else self.before.value(),
            None if self.after is None else self.after.value(),
        )


class RangeBody(_Body):
    """Whole chunks, one after the other: bytes of one object."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_RANGE]})

    bucket: str
    key: str
    first_byte: Count = Field(description="Of the object")
    next_byte: Count = Field(description="The byte after the last")
    first_offset: OffsetNumber = Field(description="Id of the first chunk")
    next_offset: OffsetNumber = Field(description="The offset after the last record")
    first_timestamp: TimestampNumber = Field(description="Of the first chunk, ms since 1970")
    last_timestamp: TimestampNumber = Field(
        description="Of the last chunk, ms since 1970; where the range ends inside a fragment, the greatest of the"
        " fragment's chunks up to there"
    )
    encoding: Encoding = Field(
        description="How the chunks stand in these bytes of the object: `identity`, as they are; `zstd-seekable`,"
        " compressed: `zstd -d` makes chunks of the bytes, which are whole frames"
    )
    data_bytes: Count = Field(description="Size of the chunks, decompressed")
    crc32: str = Field(description="CRC-32 of the whole object, as S3 shows it: big-endian, in base64")
    url: str = Field(description="Presigned: GET it, with exactly the header `Range` that `range_header` holds")
    range_header: str
    expires_at: TimestampNumber = Field(description="When the URL expires, ms since 1970; ask again then")

    def value(self) -> Range:
        """Read the body. Raises ValueError."""
        try:
            crc32 = int.from_bytes(b64decode(self.crc32, validate=True))
        except binascii.Error as err:
            raise ValueError(f"crc32 is not base64: {self.crc32!r}") from err
        return Range(
            bucket=self.bucket,
            key=self.key,
            byte_range=ByteRange(self.first_byte, self.next_byte),
            first_offset=Offset(self.first_offset),
            next_offset=Offset(self.next_offset),
            first_timestamp=TimestampMs(self.first_timestamp),
            last_timestamp=TimestampMs(self.last_timestamp),
            encoding=self.encoding,
            data_bytes=self.data_bytes,
            crc32=crc32,
            url=self.url,
            expires_at=TimestampMs(self.expires_at),
        )


class AnswerBody(_Body):
    """Where the stream is from the asked place on. Exactly one of `gap`, `tail` and `cursor` says what follows."""

    stream: StreamBody
    outcome: AnswerOutcome = Field(
        description="`ranges` if there are any, else whether a gap or the tail is there instead"
    )
    ranges: list[RangeBody] = Field(description="In the order of their offsets; the first may begin before the place")
    gap: GapBody | None = Field(description="What follows the ranges, or is there instead, is not archived")
    tail: TailBody | None = Field(description="What follows the ranges, or is asked for, is on the broker alone")
    cursor: str | None = Field(description="Asks for what follows the ranges")

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Make the body."""
        return cls.model_validate(answer_body(answer))

    def value(self) -> Answer:
        """Read the body. Raises ValueError when it contradicts itself."""
        return Answer(
            stream=self.stream.value(),
            ranges=tuple(part.value() for part in self.ranges),
            gap=None if self.gap is None else self.gap.value(),
            tail=None if self.tail is None else Offset(self.tail.next_offset),
            cursor=self.cursor,
        )


class ProblemBody(_Body):
    """An error, as RFC 9457 has it (application/problem+json)."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:coldstream:problem:invalid-query",
                    "title": "The query means nothing",
                    "status": 400,
                    "detail": "offset: '-1' is not a number from 0 to 2^64 - 1",
                    "instance": "urn:coldstream:request:1f0c6a52-8b53-4f8c-9a55-1d6a38a4d6f1",
                    "field": "offset",
                }
            ]
        },
    )

    type: str = Field(description="Which kind of problem: a URN, made for programs to tell them apart")
    title: str = Field(description="The kind of problem, in words")
    status: int = Field(description="The HTTP status")
    detail: str = Field(description="What is wrong with this request")
    instance: str | None = Field(default=None, description="The request, as the resolver's log names it")
    field: str | None = Field(default=None, description="The part of the query that is wrong")

    def value(self) -> Problem:
        """Read the body."""
        return Problem(**self.model_dump())


class GatewayBody(_Body):
    """An error of API Gateway's, before the resolver is asked."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [{"message": "Unauthorized"}]})

    message: str
