"""The columns: one row a message, in the types of Arrow.

column                   type                  content
value                    binary                the body: data as it is; an AMQP value that is text in UTF-8; any other
                                               AMQP value or sequence as JSON (format/amqp/json.py); null without a
                                               body. If the message is not AMQP or is damaged, all of its bytes, and
                                               every column that the publisher could have set is null
stream                   string                name of the stream; in a super stream, of the partition
offset                   int64                 offset of the message
chunk_timestamp          timestamp, us, UTC    timestamp of its chunk, by the leader's clock
properties               struct                the AMQP properties, with ids as text; null without any
application_properties   map<string, string>   text as it is, other values as JSON; of AMQP 0.9.1, the headers
message_annotations      map<string, string>   likewise
creation_time            timestamp, us, UTC    the one in the properties
routing_key              string                the annotation x-routing-key, which the broker writes for messages
                                               published to an exchange; else the application property routing_key

Times outside of the years 1 to 9999 are null, because the calendars of most readers end there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
PAIRS = pa.map_(pa.string(), pa.string())

_LEAST_MS = -62_135_596_800_000
_MOST_MS = 253_402_300_799_999

PROPERTIES: dict[str, pa.DataType] = {
    "message_id": pa.string(),
    "user_id": pa.binary(),
    "to": pa.string(),
    "subject": pa.string(),
    "reply_to": pa.string(),
    "correlation_id": pa.string(),
    "content_type": pa.string(),
    "content_encoding": pa.string(),
    "absolute_expiry_time": TIME,
    "creation_time": TIME,
    "group_id": pa.string(),
    "group_sequence": pa.int64(),
    "reply_to_group_id": pa.string(),
}
SCHEMA = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("chunk_timestamp", TIME),
        pa.field("properties", pa.struct(list(PROPERTIES.items()))),
        pa.field("application_properties", PAIRS),
        pa.field("message_annotations", PAIRS),
        pa.field("creation_time", TIME),
        pa.field("routing_key", pa.string()),
    ]
)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of some columns, in their order."""
    return pa.schema([SCHEMA.field(name) for name in columns])


def microseconds(timestamp: int) -> int | None:
    """Return a timestamp in ms as a time column holds it, or None if it holds none such."""
    return timestamp * 1000 if _LEAST_MS <= timestamp <= _MOST_MS else None
