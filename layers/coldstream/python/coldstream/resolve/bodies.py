"""The bodies of answers as JSON values, without the models by which `api` describes and reads them.

Those models take longer to load than a resolver takes for its first answer. A body's plain fields are listed once, by
the value that the body holds; only what JSON has otherwise is written here.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict, fields
from typing import Any

from coldstream.manifest.entry import Gap
from coldstream.manifest.stream import StreamId
from coldstream.resolve.answer import Answer, Range

Body = dict[str, Any]

_PLAIN_RANGE_FIELDS = tuple(field.name for field in fields(Range) if field.name not in {"byte_range", "crc32"})


def answer_body(answer: Answer) -> Body:
    """Make the body that `api.AnswerBody` describes."""
    return {
        "stream": stream_body(answer.stream),
        "outcome": answer.outcome,
        "ranges": [range_body(part) for part in answer.ranges],
        "gap": None if answer.gap is None else gap_body(answer.gap),
        "tail": None if answer.tail is None else {"next_offset": answer.tail},
        "cursor": answer.cursor,
        "floor": answer.floor,
    }


def stream_body(stream: StreamId) -> Body:
    """Make the body that `api.StreamBody` describes."""
    return asdict(stream)


def gap_body(gap: Gap) -> Body:
    """Make the body that `api.GapBody` describes."""
    return asdict(gap)


def range_body(part: Range) -> Body:
    """Make the body that `api.RangeBody` describes."""
    return {
        # Not `asdict`, which copies every value: an answer has up to a thousand ranges.
        **{name: getattr(part, name) for name in _PLAIN_RANGE_FIELDS},
        "first_byte": part.byte_range.start,
        "next_byte": part.byte_range.end,
        "range_header": part.byte_range.http,
        "crc32": b64encode(part.crc32.to_bytes(4, "big")).decode(),
        "must_be_restored": part.must_be_restored,
    }
