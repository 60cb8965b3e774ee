"""The event `Segment Rolled`, as it stands in EventBridge and in SQS.

docs/formats.md describes the schema for people; docs/segment-rolled.schema.json, generated from here, for programs.
Version 1 is the only one. A field that is not of the schema is refused: it may be of a version not known here.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coldstream.archive.rolled import MAX_SEGMENT_BYTES, SegmentRolled
from coldstream.errors import InvalidEventError, InvalidNameError
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.units import MAX_OFFSET, Offset

SOURCE = "coldstream.agent"
DETAIL_TYPE = "Segment Rolled"
VERSION: Literal[1] = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StreamDetail(_Model):
    """Which stream."""

    vhost: str = Field(description="Virtual host, 1 to 255 bytes of UTF-8", examples=["/"])
    name: str = Field(description="Name of the stream, 1 to 255 bytes of UTF-8", examples=["orders"])
    incarnation: str = Field(
        description="Name of the broker's directory for this life of the stream",
        pattern="^[A-Za-z0-9_=-]{1,255}$",
        examples=["__orders_1763700000000000000"],
    )


class SegmentDetail(_Model):
    """Which segment of it."""

    first_offset: int = Field(ge=0, le=MAX_OFFSET, description="Offset of its first record")
    next_offset: int = Field(gt=0, le=MAX_OFFSET, description="Offset after its last record")
    size_bytes: int = Field(gt=0, le=MAX_SEGMENT_BYTES, description="Size of the segment file")


class StagedDetail(_Model):
    """Where its bytes are."""

    bucket: str = Field(description="The archive's bucket")
    key: str = Field(
        description="{prefix}staging/{incarnation}/{first offset}-{next offset}.segment, offsets in 20 digits"
    )


class SegmentRolledDetail(_Model):
    """The broker has closed a segment, and all its bytes are staged."""

    version: Literal[1] = Field(description="Version of this schema")
    stream: StreamDetail
    segment: SegmentDetail
    staged: StagedDetail


def detail_of(segment: SegmentRolled) -> str:
    """Write the event's detail: JSON."""
    stream = segment.stream
    return SegmentRolledDetail(
        version=VERSION,
        stream=StreamDetail(vhost=stream.vhost, name=stream.name, incarnation=stream.incarnation),
        segment=SegmentDetail(
            first_offset=segment.first_offset, next_offset=segment.next_offset, size_bytes=segment.size_bytes
        ),
        staged=StagedDetail(bucket=segment.bucket, key=segment.staged_key),
    ).model_dump_json()


def segment_of(body: str) -> SegmentRolled:
    """Read the body of an SQS record: an EventBridge envelope around the detail.

    Raises InvalidEventError, naming the field, when it is anything else than a valid `Segment Rolled` of version 1.
    """
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError) as err:
        raise InvalidEventError("body", f"is not JSON: {err}") from err
    if not isinstance(envelope, dict):
        raise InvalidEventError("body", "is not a JSON object")
    for field, wanted in (("source", SOURCE), ("detail-type", DETAIL_TYPE)):
        if envelope.get(field) != wanted:
            raise InvalidEventError(field, f"is {envelope.get(field)!r}, not {wanted!r}")
    detail = _detail(envelope.get("detail"))
    try:
        stream = StreamId(detail.stream.vhost, detail.stream.name, incarnation(detail.stream.incarnation))
    except InvalidNameError as err:
        raise InvalidEventError(f"detail.stream: {err.field}", err.problem) from err
    return SegmentRolled(
        stream=stream,
        first_offset=Offset(detail.segment.first_offset),
        next_offset=Offset(detail.segment.next_offset),
        size_bytes=detail.segment.size_bytes,
        bucket=detail.staged.bucket,
        staged_key=detail.staged.key,
    )


def _detail(detail: Any) -> SegmentRolledDetail:
    try:
        return SegmentRolledDetail.model_validate(detail)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        field = ".".join(("detail", *map(str, first["loc"])))
        raise InvalidEventError(field, first["msg"]) from err
