"""The bodies of answers as JSON values, without the models that `api` describes and reads them with.

Those models take longer to load than a resolver takes for its first answer.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.resolve.answer import Answer, Range

Body = dict[str, Any]


def answer_body(answer: Answer) -> Body:
    """Make the body that `api.AnswerBody` describes."""
    return {
        "stream": stream_body(answer.stream),
        "outcome": answer.outcome,
        "ranges": [range_body(part) for part in answer.ranges],
        "gap": None if answer.gap is None else gap_body(answer.gap),
        "tail": None if answer.tail is None else {"next_offset": answer.tail},
        "cursor": answer.cursor,
    }


def stream_body(stream: StreamId) -> Body:
    """Make the body that `api.StreamBody` describes."""
    return {"vhost": stream.vhost, "name": stream.name, "incarnation": stream.incarnation}


def gap_body(gap: Gap) -> Body:
    """Make the body that `api.GapBody` describes."""
    return {"first_offset": gap.first_offset, "next_offset": gap.next_offset, "reason": gap.reason}


def range_body(part: Range) -> Body:
    """Make the body that `api.RangeBody` describes."""
    return {
        "bucket": part.bucket,
        "key": part.key,
        "first_byte": part.byte_range.start,
        "next_byte": part.byte_range.end,
        "first_offset": part.first_offset,
        "next_offset": part.next_offset,
        "first_timestamp": part.first_timestamp,
        "last_timestamp": part.last_timestamp,
        "encoding": part.encoding,
        "data_bytes": part.data_bytes,
        "crc32": b64encode(part.crc32.to_bytes(4, "big")).decode(),
        "url": part.url,
        "range_header": part.byte_range.http,
        "expires_at": part.expires_at,
    }
