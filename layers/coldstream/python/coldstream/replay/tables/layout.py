"""Layout of a table: which directory a row is in, as Hive and Spark name them, and what a file is called.

    {path}/stream={name}/date={YYYY-MM-DD}/{stream hash, 12}-{first offset of the span, 20}-{number, 4}.parquet
    {path}/_coldstream/{incarnation}/{first offset of the span, 20}.begun
    {path}/_coldstream/{incarnation}/{first offset of the span, 20}-{next offset, 20}.done

Date and hour are those of the chunk's timestamp, in UTC. Names are untrusted text: they come out escaped, as Hive and
Spark escape them, so that none leaves its directory. Directories that begin with "_" are not data to any reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Self

from coldstream.errors import InvalidQueryError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs

MARKS = "_coldstream"
"""Directory of what is known of the table."""

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
"""What a date is that no calendar reaches."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""What Hive and Spark escape in the value of a partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FileFormat(StrEnum):
    """What files of a table are; the value is how their names end."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    JSONL_GZIP = "jsonl.gz"


class PartitionColumn(StrEnum):
    """By what a table can be partitioned."""

    STREAM = "stream"
    DATE = "date"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """By what a table is partitioned, outermost first; by nothing where there are no columns."""

    columns: tuple[PartitionColumn, ...] = (PartitionColumn.STREAM, PartitionColumn.DATE)

    def __str__(self) -> str:
        return ",".join(self.columns) or "none"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `none`, or columns with commas between. Raises InvalidQueryError."""
        names = [] if text.strip() == "none" else [name.strip() for name in text.split(",")]
        known = [column.value for column in PartitionColumn]
        if not set(names) <= set(known) or len(set(names)) < len(names):
            raise InvalidQueryError(
                "--partition-by", f"{text[:80]!r} is neither none nor some of {', '.join(known)}, with commas between"
            )
        return cls(tuple(PartitionColumn(name) for name in names))

    def directory(self, stream: str, timestamp: TimestampMs) -> str:
        """Return the directory of rows, with a slash at its end; empty where there are no partitions."""
        return "".join(f"{column}={_value(column, stream, timestamp)}/" for column in self.columns)

    def above(self, stream: str) -> str:
        """Return a directory that all rows of a stream are below, as deep as there is one."""
        if self.columns[:1] != (PartitionColumn.STREAM,):
            return ""
        return f"{PartitionColumn.STREAM}={escape(stream)}/"


def escape(value: str) -> str:
    """Write the value of a partition as part of a path."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", value)


def file_stem(incarnation: Incarnation, first_offset: Offset) -> str:
    """Return what the names of all files of a span, and of no other, begin with."""
    return f"{sha256(incarnation.encode()).hexdigest()[:12]}-{first_offset:020}-"


def file_name(stem: str, number: int, form: FileFormat) -> str:
    """Return the name of a file of a span; they count from 0."""
    return f"{stem}{number:04}.{form}"


def leftovers(names: Sequence[str], stem: str, kept: Sequence[str]) -> list[str]:
    """Find the files of a span that are none of those kept."""
    return [name for name in names if name.rpartition("/")[2].startswith(stem) and name not in set(kept)]


def marks_directory(stream: StreamId) -> str:
    """Return the directory of a stream's marks, with a slash at its end."""
    return f"{MARKS}/{stream.incarnation}/"


def _value(column: PartitionColumn, stream: str, timestamp: TimestampMs) -> str:
    if column is PartitionColumn.STREAM:
        return escape(stream)
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return NO_DATE
    return moment.date().isoformat() if column is PartitionColumn.DATE else f"{moment.hour:02}"
