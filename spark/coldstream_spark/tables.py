"""Tables by Spark: a streaming query of the data source into files, which ends where the archive ends.

    {path}/stream={name}/date={YYYY-MM-DD}/part-….parquet      Spark's file sink; _spark_metadata says which files count
    {path}/_coldstream/checkpoint/                             Spark's checkpoint, unless an option names another path
    {path}/_coldstream/checkpoint/replay.json                  the request that the checkpoint belongs to

The checkpoint says how far the table is, and the sink's log which files of each batch belong to it. So a run goes on
where the one before ended or was killed: the batch that was begun is written again, and only its new files count.
Readers other than Spark also see the files of failed tasks.

Before 4.2, Spark makes one batch of everything that an AvailableNow query reads (streaming.py). There a run consists of
several queries, each of which is told to end one batch further.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody knows it
from pyspark.sql.streaming.query import StreamingQuery

from coldstream.replay.request import ReplayRequest
from coldstream.replay.tables.layout import FileFormat, PartitionColumn, Partitioning
from coldstream.replay.tables.row_transform import RowTransform
from coldstream_spark import register
from coldstream_spark.checkpoint import Checkpoint
from coldstream_spark.limits import limit_positions
from coldstream_spark.location import ArchiveLocation
from coldstream_spark.positions import Position, Positions, is_past, never_back
from coldstream_spark.schema import COLUMNS, spark_schema
from coldstream_spark.streaming import SPARK_PASSES_START
from coldstream_spark.summary import QueryProgress, TableSummary

BATCH_BYTES = 4 << 30
"""Most bytes of chunks in one micro-batch: what the run after a killed one does again."""

_DAY_S = 86_400
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class TableJob:
    """A replay into a table: of which requests, and how. `bounds` are where to begin and end, as the user gave them."""

    requests: tuple[ReplayRequest, ...]
    bounds: tuple[str, str | None]
    path: str
    form: FileFormat
    partitioning: Partitioning
    checkpoint: str | None = None
    transform: RowTransform | None = None

    @property
    def checkpoint_path(self) -> str:
        """The path of the checkpoint."""
        return self.checkpoint or f"{self.path.rstrip('/')}/_coldstream/checkpoint"

    def run(self, spark: SparkSession, location: ArchiveLocation, tell: Callable[[str], None]) -> TableSummary:
        """Replay until everything is in the table, or a query makes no progress.

        Raises InvalidQueryError if the checkpoint belongs to another replay, and StreamingQueryException; what was
        committed stays.
        """
        checkpoint = Checkpoint(spark, self.checkpoint_path, self.requests[0].stream.vhost)
        checkpoint.claim(self._identity())
        register(spark)
        starts = {request.stream.name: Position(request.stream, request.start) for request in self.requests}
        ends = {request.stream.name: Position(request.stream, request.end) for request in self.requests}
        before = now = starts | dict(checkpoint.committed())
        progress = QueryProgress(tell)
        while not is_past(now, ends):
            query = self._start(spark, location, self._next(location, now, checkpoint.begun(), ends))
            try:
                progress.follow(query)
            finally:
                query.stop()  # after an interrupt, too: the JVM would run it on
            last, now = now, starts | dict(checkpoint.committed())
            # Nothing was committed: another query would do the same, for ever.
            if now == last:
                break
        return TableSummary(self.path, self.requests, before, now, progress.messages, progress.batches)

    def _next(self, location: ArchiveLocation, now: Positions, begun: Positions, ends: Positions) -> Positions:
        """Return where the next query ends."""
        if SPARK_PASSES_START:
            return ends
        # Spark finishes a batch that was begun at the end that it was given then. The query must not end before that.
        return never_back(begun, limit_positions(location.open_table(), now, ends, size_bytes=BATCH_BYTES))

    def _start(self, spark: SparkSession, location: ArchiveLocation, ends: Positions) -> StreamingQuery:
        rows = spark.readStream.format("coldstream").options(**self._options(location, ends)).load()
        if self.transform is not None:
            rows = _transform_rows(rows, self.transform)
        columns = [column for column in self.partitioning.columns if column is not PartitionColumn.STREAM]
        rows = rows.withColumns({str(column): _part(column) for column in columns})
        if self.form is not FileFormat.PARQUET:
            rows = _readable(rows)
        writer = (
            rows.writeStream.format("parquet" if self.form is FileFormat.PARQUET else "json")
            .option("path", self.path)
            .option("checkpointLocation", self.checkpoint_path)
            .option("compression", _COMPRESSION[self.form])
            .option("timeZone", "UTC")
            .partitionBy(*map(str, self.partitioning.columns))
            .trigger(availableNow=True)
        )
        return writer.start()

    def _options(self, location: ArchiveLocation, ends: Positions) -> dict[str, str]:
        first = self.requests[0]
        starts = {request.stream.name: request.start or "earliest" for request in self.requests}
        options = {
            "streams": json.dumps(list(starts)),
            "vhost": first.stream.vhost,
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps({name: ends[name].offset for name in starts}),
            "failOnDataLoss": str(not first.skip_gaps).lower(),
            "table": location.table,
            "bucket": location.bucket,
        }
        if SPARK_PASSES_START:
            options["maxBytesPerTrigger"] = str(BATCH_BYTES)
        if len(self.requests) == 1:
            options["incarnation"] = first.stream.incarnation
        endpoint = dict(location.variables).get("AWS_ENDPOINT_URL")
        return options | ({"endpoint": endpoint} if endpoint else {})

    def _identity(self) -> dict[str, Any]:
        start, end = self.bounds
        return {
            "streams": sorted(request.stream.name for request in self.requests),
            "vhost": self.requests[0].stream.vhost,
            "from": start,
            "to": end,
            "format": self.form,
            "partition_by": str(self.partitioning),
        }


_COMPRESSION = {FileFormat.PARQUET: "zstd", FileFormat.JSONL: "none", FileFormat.JSONL_GZIP: "gzip"}


def _transform_rows(rows: DataFrame, transform: RowTransform) -> DataFrame:
    """Apply a user's function to rows, one by one: Spark's functions on batches need pandas."""

    def apply(row: Row) -> dict[str, Any] | None:
        found = _aware(row.asDict(recursive=True))
        origin = {name: found[name] for name in ("stream", "offset", "chunk_timestamp")}
        changed = transform(found)
        return None if changed is None else changed | origin

    # Otherwise Spark would evaluate it twice, once more in the filter, and the function may be slow.
    function = F.udf(apply, spark_schema(COLUMNS), useArrow=False).asNondeterministic()
    changed = rows.select(function(F.struct(*COLUMNS)).alias("row"))
    return changed.where(F.col("row").isNotNull()).select("row.*")


def _aware(value: Any) -> Any:
    """Give times their zone, UTC: PySpark returns them in the machine's zone, without naming it."""
    if isinstance(value, dict):
        return {name: _aware(item) for name, item in value.items()}
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _part(column: PartitionColumn) -> Column:
    """Return the date or hour of the chunk in UTC, whatever the session's zone is."""
    seconds = F.unix_seconds("chunk_timestamp")
    if column is PartitionColumn.DATE:
        return F.date_from_unix_date(F.floor(seconds / _DAY_S).cast("int")).cast("string")
    return F.lpad(F.floor(F.pmod(seconds, F.lit(_DAY_S)) / _HOUR_S).cast("string"), 2, "0")


def _readable(rows: DataFrame) -> DataFrame:
    """Turn bytes into text if they are UTF-8, else into base64 in a column beside it, as `coldstream replay` does."""
    value, user = F.col("value"), F.col("properties.user_id")
    properties = F.col("properties").withField("user_id", _text(user)).withField("user_id_base64", _base64(user))
    return rows.withColumns({"value": _text(value), "value_base64": _base64(value), "properties": properties})


def _text(column: Column) -> Column:
    return F.try_validate_utf8(column.cast("string"))


def _base64(column: Column) -> Column:
    return F.when(_text(column).isNull(), F.base64(column))
