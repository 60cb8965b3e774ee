"""Layout of a table: the directories of its rows, named as Hive and Spark name them, and the names of its files.

    {path}/stream={name}/date={YYYY-MM-DD}/{stream hash, 12}-{first offset of the span, 20}-{number, 4}.parquet
    {path}/_coldstream/{incarnation}/{first offset of the span, 20}.begun
    {path}/_coldstream/{incarnation}/{first offset of the span, 20}-{next offset, 20}.done
    {path}/_coldstream/{incarnation}@{window hash, 12}/…    the marks of a replay of a time window

Date and hour are those of the chunk's timestamp, in UTC. Names of streams are untrusted text: they are escaped, as Hive
and Spark do it, so that none leaves its directory. No reader takes directories whose names begin with "_" for data.
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
from coldstream.replay.arguments import ReplayArguments
from coldstream.units import Offset, TimestampMs

MARKS = "_coldstream"
"""Directory of the marks: what the table is like, and which offsets it has."""

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
"""Stands for a date outside of the calendar."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""Characters that Hive and Spark escape in the value of a partition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FileFormat(StrEnum):
    """Format of a table's files; the value is the end of their names."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    JSONL_GZIP = "jsonl.gz"


class PartitionColumn(StrEnum):
    """A column by which a table can be partitioned."""

    STREAM = "stream"
    DATE = "date"
    HOUR = "hour"


def file_format(arguments: ReplayArguments) -> FileFormat:
    """Return the format of the files that a user asked for."""
    if arguments.to_parquet is not None:
        return FileFormat.PARQUET
    return FileFormat.JSONL_GZIP if arguments.gzip else FileFormat.JSONL


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The columns by which a table is partitioned, outermost first; none for a table without partitions."""

    columns: tuple[PartitionColumn, ...] = (PartitionColumn.STREAM, PartitionColumn.DATE)

    def __str__(self) -> str:
        return ",".join(self.columns) or "none"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `none`, or columns between commas. Raises InvalidQueryError."""
        names = [] if text.strip() == "none" else [name.strip() for name in text.split(",")]
        known = [column.value for column in PartitionColumn]
        if not set(names) <= set(known) or len(set(names)) < len(names):
            raise InvalidQueryError(
                "--partition-by", f"{text[:80]!r} is neither none nor some of {', '.join(known)}, between commas"
            )
        return cls(tuple(PartitionColumn(name) for name in names))

    def directory(self, stream: str, timestamp: TimestampMs) -> str:
        """Return the directory of rows, with a slash at its end; "" for a table without partitions."""
        return "".join(f"{column}={_value(column, stream, timestamp)}/" for column in self.columns)

    def above(self, stream: str) -> str:
        """Return the deepest directory below which all rows of a stream lie."""
        if self.columns[:1] != (PartitionColumn.STREAM,):
            return ""
        return f"{PartitionColumn.STREAM}={escape(stream)}/"


def escape(value: str) -> str:
    """Write the value of a partition as part of a path."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", value)


def file_stem(incarnation: Incarnation, first_offset: Offset, window: str = "") -> str:
    """Return the beginning that the names of all files of a span, and of no other span, have in common.

    Spans of another time window are others: they have other messages of the same offsets.
    """
    return f"{_digest(incarnation + window)}-{first_offset:020}-"


def file_name(stem: str, number: int, form: FileFormat) -> str:
    """Return the name of a file of a span; files are numbered from 0."""
    return f"{stem}{number:04}.{form}"


def leftovers(names: Sequence[str], stem: str, kept: Sequence[str]) -> list[str]:
    """Find the files of a span that are not among those kept."""
    return [name for name in names if name.rpartition("/")[2].startswith(stem) and name not in set(kept)]


def marks_directory(stream: StreamId, window: str = "") -> str:
    """Return the directory of a stream's marks, for a time window if there is one, with a slash at its end."""
    return f"{MARKS}/{stream.incarnation}{f'@{_digest(window)}' if window else ''}/"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _value(column: PartitionColumn, stream: str, timestamp: TimestampMs) -> str:
    if column is PartitionColumn.STREAM:
        return escape(stream)
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return NO_DATE
    return moment.date().isoformat() if column is PartitionColumn.DATE else f"{moment.hour:02}"
