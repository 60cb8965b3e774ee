"""The columns: one row a message, in the types of Spark and of Arrow.

column                   type                  content
value                    binary                the body: data as it is; text of an AMQP value in UTF-8; any other
                                               AMQP value or sequence as JSON; null without a body. Of a message
                                               that is not AMQP, or damaged, all of its bytes; all else is null
stream                   string                name of the stream, or of the super stream's partition
offset                   bigint                offset of the message
chunk_timestamp          timestamp             time of its chunk, by the leader's clock
properties               struct                the AMQP properties; null without any
application_properties   map<string, string>   values that are not text as JSON; of AMQP 0.9.1, the headers
message_annotations      map<string, string>   so, too
creation_time            timestamp             of the properties
routing_key              string                the annotation x-routing-key, which the broker writes for messages
                                               published to an exchange; else the application property routing_key
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TIME = pa.timestamp("us", tz="UTC")
_PAIRS = pa.map_(pa.string(), pa.string())
_SPARK_PAIRS = MapType(StringType(), StringType())

PROPERTIES: dict[str, tuple[DataType, pa.DataType]] = {
    "message_id": (StringType(), pa.string()),
    "user_id": (BinaryType(), pa.binary()),
    "to": (StringType(), pa.string()),
    "subject": (StringType(), pa.string()),
    "reply_to": (StringType(), pa.string()),
    "correlation_id": (StringType(), pa.string()),
    "content_type": (StringType(), pa.string()),
    "content_encoding": (StringType(), pa.string()),
    "absolute_expiry_time": (TimestampType(), _TIME),
    "creation_time": (TimestampType(), _TIME),
    "group_id": (StringType(), pa.string()),
    "group_sequence": (LongType(), pa.int64()),
    "reply_to_group_id": (StringType(), pa.string()),
}
_TYPES: dict[str, tuple[DataType, pa.DataType]] = {
    "value": (BinaryType(), pa.binary()),
    "stream": (StringType(), pa.string()),
    "offset": (LongType(), pa.int64()),
    "chunk_timestamp": (TimestampType(), _TIME),
    "properties": (
        StructType([StructField(name, kind) for name, (kind, _) in PROPERTIES.items()]),
        pa.struct([(name, kind) for name, (_, kind) in PROPERTIES.items()]),
    ),
    "application_properties": (_SPARK_PAIRS, _PAIRS),
    "message_annotations": (_SPARK_PAIRS, _PAIRS),
    "creation_time": (TimestampType(), _TIME),
    "routing_key": (StringType(), pa.string()),
}
COLUMNS = tuple(_TYPES)
_ALWAYS = frozenset(("stream", "offset", "chunk_timestamp"))
"""Never null."""


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the schema of these columns, in their order."""
    return StructType([StructField(name, _TYPES[name][0], name not in _ALWAYS) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the same for Arrow, which Spark holds every batch against."""
    return pa.schema([pa.field(name, _TYPES[name][1], name not in _ALWAYS) for name in columns])
