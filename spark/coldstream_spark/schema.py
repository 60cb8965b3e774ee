"""The columns of the source (coldstream/rows/schema.py) in Spark's types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

from coldstream.rows.schema import PAIRS, SCHEMA, TIME, schema_of

COLUMNS = tuple(SCHEMA.names)
SHARD_COLUMNS = ("shard", "shard_rank")
"""Of a sharded stream: the partition's number, and the rank by which, then by offset, a key's messages are in order."""
_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int64(): LongType(),
    TIME: TimestampType(),
    PAIRS: MapType(StringType(), StringType()),
}


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the schema of these columns, in this order."""
    fields = {name: StructField(name, LongType(), nullable=False) for name in SHARD_COLUMNS}
    of_messages = schema_of([name for name in columns if name not in fields])
    fields |= {field.name: field for field in _struct(of_messages)}
    return StructType([fields[name] for name in columns])


def _struct(fields: Iterable[pa.Field]) -> StructType:
    return StructType(
        [
            StructField(
                field.name,
                _struct(field.type) if pa.types.is_struct(field.type) else _TYPES[field.type],
                field.nullable,
            )
            for field in fields
        ]
    )
