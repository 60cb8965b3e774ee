"""Tables by Spark: a streaming query of the data source into files, which ends with what is archived.

    {path}/stream={name}/date={YYYY-MM-DD}/part-….parquet      Spark's file sink; _spark_metadata says which files count
    {path}/_coldstream/checkpoint/                             Spark's checkpoint, unless it is to be elsewhere
    {path}/_coldstream/checkpoint/replay.json                  what the checkpoint is of

The checkpoint knows how far the table is, and the log of the sink which files of which batch are part of it. So a run
goes on where the one before ended, or was killed. Readers other than Spark see the files of failed tasks, too.

Before 4.2 Spark makes one batch of all that an AvailableNow query is to read (streaming.py). There a run is several
queries, each of which is told to end a batch further.
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
from coldstream_spark.limits import within
from coldstream_spark.place import Place
from coldstream_spark.positions import Position, Positions, is_past, never_back
from coldstream_spark.schema import COLUMNS, spark_schema
from coldstream_spark.streaming import SAYS_WHERE_IT_IS
from coldstream_spark.summary import TableSummary, Telling

BATCH_BYTES = 4 << 30
"""Of chunks, in one micro-batch at most: what a run that is killed has to do again."""

_DAY_S = 86_400
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class TableJob:
    """A replay into a table: of which sources, and how. `asked` is the range as the user gave it."""

    sources: tuple[ReplayRequest, ...]
    asked: tuple[str, str | None]
    path: str
    form: FileFormat
    partitioning: Partitioning
    checkpoint: str | None = None
    transform: RowTransform | None = None

    @property
    def checkpoint_path(self) -> str:
        """Where the checkpoint is."""
        return self.checkpoint or f"{self.path.rstrip('/')}/_coldstream/checkpoint"

    def run(self, spark: SparkSession, place: Place, tell: Callable[[str], None]) -> TableSummary:
        """Replay until all is in the table, or Spark gets no further.

        Raises InvalidQueryError where the checkpoint is of another replay, and StreamingQueryException, after which all
        that was committed stays.
        """
        checkpoint = Checkpoint(spark, self.checkpoint_path, self.sources[0].stream.vhost)
        checkpoint.claim(self._asked())
        register(spark)
        starts = {source.stream.name: Position(source.stream, source.start) for source in self.sources}
        ends = {source.stream.name: Position(source.stream, source.end) for source in self.sources}
        before = now = starts | dict(checkpoint.committed())
        telling = Telling(tell)
        while not is_past(now, ends):
            query = self._start(spark, place, self._next(place, now, checkpoint.begun(), ends))
            try:
                telling.follow(query)
            finally:
                query.stop()
            last, now = now, starts | dict(checkpoint.committed())
            if now == last:
                break
        return TableSummary(self.path, self.sources, before, now, telling.messages, telling.batches)

    def _next(self, place: Place, now: Positions, begun: Positions, ends: Positions) -> Positions:
        """Return where the next query ends."""
        if SAYS_WHERE_IT_IS:
            return ends
        # A batch that was begun ends where it was to: what follows begins there.
        return never_back(begun, within(place.open_table(), now, ends, size_bytes=BATCH_BYTES))

    def _start(self, spark: SparkSession, place: Place, ends: Positions) -> StreamingQuery:
        rows = spark.readStream.format("coldstream").options(**self._options(place, ends)).load()
        if self.transform is not None:
            rows = _transformed(rows, self.transform)
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

    def _options(self, place: Place, ends: Positions) -> dict[str, str]:
        first = self.sources[0]
        starts = {source.stream.name: source.start or "earliest" for source in self.sources}
        options = {
            "streams": json.dumps(list(starts)),
            "vhost": first.stream.vhost,
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps({name: ends[name].offset for name in starts}),
            "failOnDataLoss": str(not first.skip_gaps).lower(),
            "table": place.table,
            "bucket": place.bucket,
        }
        if SAYS_WHERE_IT_IS:
            options["maxBytesPerTrigger"] = str(BATCH_BYTES)
        if len(self.sources) == 1:
            options["incarnation"] = first.stream.incarnation
        endpoint = dict(place.variables).get("AWS_ENDPOINT_URL")
        return options | ({"endpoint": endpoint} if endpoint else {})

    def _asked(self) -> dict[str, Any]:
        start, end = self.asked
        return {
            "streams": sorted(source.stream.name for source in self.sources),
            "vhost": self.sources[0].stream.vhost,
            "from": start,
            "to": end,
            "format": self.form,
            "partition_by": str(self.partitioning),
        }


_COMPRESSION = {FileFormat.PARQUET: "zstd", FileFormat.JSONL: "none", FileFormat.JSONL_GZIP: "gzip"}


def _transformed(rows: DataFrame, transform: RowTransform) -> DataFrame:
    """Pass rows through a user's function, one by one: what takes them in Arrow's batches wants pandas."""

    def apply(row: Row) -> dict[str, Any] | None:
        found = _aware(row.asDict(recursive=True))
        origin = {name: found[name] for name in ("stream", "offset", "chunk_timestamp")}
        made = transform(found)
        return None if made is None else made | origin

    # Nothing that is evaluated twice: Spark would put it into the filter as well.
    function = F.udf(apply, spark_schema(COLUMNS), useArrow=False).asNondeterministic()
    made = rows.select(function(F.struct(*COLUMNS)).alias("row"))
    return made.where(F.col("row").isNotNull()).select("row.*")


def _aware(value: Any) -> Any:
    """Give times their zone, UTC: PySpark has them in the zone of the machine, without saying so."""
    if isinstance(value, dict):
        return {name: _aware(item) for name, item in value.items()}
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _part(column: PartitionColumn) -> Column:
    """Return date or hour of the chunk in UTC, whatever the session's zone."""
    seconds = F.unix_seconds("chunk_timestamp")
    if column is PartitionColumn.DATE:
        return F.date_from_unix_date(F.floor(seconds / _DAY_S).cast("int")).cast("string")
    return F.lpad(F.floor(F.pmod(seconds, F.lit(_DAY_S)) / _HOUR_S).cast("string"), 2, "0")


def _readable(rows: DataFrame) -> DataFrame:
    """Have bytes as text where they are UTF-8, else in base64 beside it, as `coldstream replay` writes them."""
    value, user = F.col("value"), F.col("properties.user_id")
    properties = F.col("properties").withField("user_id", _text(user)).withField("user_id_base64", _base64(user))
    return rows.withColumns({"value": _text(value), "value_base64": _base64(value), "properties": properties})


def _text(column: Column) -> Column:
    return F.try_validate_utf8(column.cast("string"))


def _base64(column: Column) -> Column:
    return F.when(_text(column).isNull(), F.base64(column))
