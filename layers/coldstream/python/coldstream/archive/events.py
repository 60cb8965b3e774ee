"""The agent's events, `Segment Rolled` and `Segment Lost`, as EventBridge and SQS carry them (`archive.envelope`).

docs/formats.md describes their schemas for people. docs/segment-rolled.schema.json and docs/segment-lost.schema.json
describe them for programs, and are generated from here. Version 1 is the only one. An unknown field is an error: it may
belong to a later version and change the meaning of the others.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from coldstream.archive.borders import QuietSpans
from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, VERSION, cluster_of
from coldstream.archive.segment_lost import MAX_REASON_BYTES, SegmentLost
from coldstream.archive.segment_rolled import (
    MAX_CUT_EVERY_MS,
    MAX_ETAG,
    MAX_MIN_BYTES,
    MAX_SEGMENT_BYTES,
    MIN_CUT_EVERY_MS,
    SegmentRolled,
)
from coldstream.errors import InvalidEventError, InvalidNameError
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.plain_json import read_json
from coldstream.units import MAX_OFFSET, Offset

_Detail = TypeVar("_Detail", bound=BaseModel)


def _in_utf8(text: str) -> str:
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_in_utf8)]
"""JSON's escapes can bring half of a character, which no item and no key can hold."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StreamDetail(_Model):
    """The stream."""

    vhost: str = Field(description="Virtual host, 1 to 255 bytes of UTF-8", examples=["/"])
    name: str = Field(description="Name of the stream, 1 to 255 bytes of UTF-8", examples=["orders"])
    incarnation: str = Field(
        description="Name of the broker's directory for this incarnation of the stream",
        pattern="^[A-Za-z0-9_=-]{1,255}$",
        examples=["__orders_1763700000000000000"],
    )


class QuietDetail(_Model):
    """Longer spans for what is little."""

    min_bytes: int = Field(
        ge=1, le=MAX_MIN_BYTES, description="Less data than this, from a border on, ends at borders of every_ms alone"
    )
    every_ms: int = Field(
        ge=MIN_CUT_EVERY_MS, le=MAX_CUT_EVERY_MS, description="Its spans, no shorter than cut_every_ms"
    )


class SegmentDetail(_Model):
    """The segment of the stream, or the slice of a segment."""

    first_offset: int = Field(ge=0, le=MAX_OFFSET, description="Offset of its first record")
    next_offset: int = Field(gt=0, le=MAX_OFFSET, description="Offset after its last record")
    size_bytes: int = Field(gt=0, le=MAX_SEGMENT_BYTES, description="Size of the staged copy: header and chunks")
    cut_every_ms: int | None = Field(
        default=None,
        ge=MIN_CUT_EVERY_MS,
        le=MAX_CUT_EVERY_MS,
        description="Fragments also end where timestamp // cut_every_ms of user chunks changes; absent: only by size",
    )
    quiet: QuietDetail | None = Field(default=None, description="Longer spans for what is little; absent: none")


class StagedDetail(_Model):
    """The staged copy."""

    bucket: Text = Field(description="The archive's bucket")
    key: Text = Field(
        description="{prefix}staging/[{cluster}/]{incarnation}/{first offset}-{next offset}.segment, 20 digits each"
    )
    etag: Text | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ETAG,
        description="ETag of this copy in S3: the event says nothing about another copy at the same key",
        examples=['"9b2cf535f27731c974343645a3985328"'],
    )


class SegmentRolledDetail(_Model):
    """Chunks of a segment are committed and staged: all chunks of a closed segment, or a slice."""

    version: Literal[1] = Field(description="Version of this schema")
    stream: StreamDetail
    segment: SegmentDetail
    staged: StagedDetail


class LostDetail(_Model):
    """The lost offsets."""

    first_offset: int = Field(ge=0, le=MAX_OFFSET, description="The first lost offset")
    next_offset: int = Field(gt=0, le=MAX_OFFSET, description="The offset after the last lost one")


class SegmentLostDetail(_Model):
    """Offsets that were given up before they were archived."""

    version: Literal[1] = Field(description="Version of this schema")
    stream: StreamDetail
    lost: LostDetail
    reason: Text = Field(
        min_length=1,
        max_length=MAX_REASON_BYTES,
        description="Why, for people: 1 to 1000 bytes of UTF-8",
        examples=["the disk was full"],
    )
    unseen: Literal[True] | None = Field(
        default=None,
        description="True if they were deleted before an agent came to the stream, which is no reason for an alarm",
    )


def detail_of(event: SegmentRolled | SegmentLost) -> str:
    """Encode an event's detail as JSON."""
    names = event.stream
    stream = StreamDetail(vhost=names.vhost, name=names.name, incarnation=names.incarnation)
    detail: SegmentRolledDetail | SegmentLostDetail
    match event:
        case SegmentRolled():
            segment = SegmentDetail(
                first_offset=event.first_offset,
                next_offset=event.next_offset,
                size_bytes=event.size_bytes,
                cut_every_ms=event.cut_every_ms,
                quiet=None
                if event.quiet is None
                else QuietDetail(min_bytes=event.quiet.min_bytes, every_ms=event.quiet.every_ms),
            )
            staged = StagedDetail(bucket=event.bucket, key=event.staged_key, etag=event.etag)
            detail = SegmentRolledDetail(version=VERSION, stream=stream, segment=segment, staged=staged)
        case SegmentLost():
            lost = LostDetail(first_offset=event.first_offset, next_offset=event.next_offset)
            detail = SegmentLostDetail(
                version=VERSION, stream=stream, lost=lost, reason=event.reason, unseen=event.unseen or None
            )
    return detail.model_dump_json(exclude_none=True)


def event_of(body: str) -> SegmentRolled | SegmentLost:
    """Decode the body of an SQS record: an EventBridge envelope around the detail.

    Raises InvalidEventError, which names the field, unless it is a valid event of version 1.
    """
    try:
        envelope = read_json(body)
    except ValueError as err:
        raise InvalidEventError("body", f"is not JSON: {err}") from err
    if not isinstance(envelope, dict):
        raise InvalidEventError("body", "is not a JSON object")
    announcing = cluster_of(envelope.get("source"))
    match envelope.get("detail-type"):
        case "Segment Rolled":
            return _rolled(_detail(SegmentRolledDetail, envelope.get("detail")), announcing)
        case "Segment Lost":
            return _lost(_detail(SegmentLostDetail, envelope.get("detail")), announcing)
        case other:
            raise InvalidEventError("detail-type", f"is {other!r}, not {DETAIL_TYPE!r} or {LOST_DETAIL_TYPE!r}")


def _rolled(detail: SegmentRolledDetail, announcing: Cluster) -> SegmentRolled:
    return SegmentRolled(
        stream=_stream(detail.stream),
        first_offset=Offset(detail.segment.first_offset),
        next_offset=Offset(detail.segment.next_offset),
        size_bytes=detail.segment.size_bytes,
        bucket=detail.staged.bucket,
        staged_key=detail.staged.key,
        cut_every_ms=detail.segment.cut_every_ms,
        etag=detail.staged.etag,
        cluster=announcing,
        quiet=None
        if detail.segment.quiet is None
        else QuietSpans(detail.segment.quiet.min_bytes, detail.segment.quiet.every_ms),
    )


def _lost(detail: SegmentLostDetail, announcing: Cluster) -> SegmentLost:
    return SegmentLost(
        stream=_stream(detail.stream),
        first_offset=Offset(detail.lost.first_offset),
        next_offset=Offset(detail.lost.next_offset),
        reason=detail.reason,
        unseen=detail.unseen is not None,
        cluster=announcing,
    )


def _stream(detail: StreamDetail) -> StreamId:
    try:
        return StreamId(detail.vhost, detail.name, incarnation(detail.incarnation))
    except InvalidNameError as err:
        raise InvalidEventError(f"detail.stream: {err.field}", err.problem) from err


def _detail(shape: type[_Detail], detail: Any) -> _Detail:
    try:
        return shape.model_validate(detail)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        field = ".".join(("detail", *map(str, first["loc"])))
        raise InvalidEventError(field, first["msg"]) from err
