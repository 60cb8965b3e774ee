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
_TYPES: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.string(): StringType(),
    pa.int64(): LongType(),
    TIME: TimestampType(),
    PAIRS: MapType(StringType(), StringType()),
}


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the schema of these columns, in this order."""
    return _struct(schema_of(columns))


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
