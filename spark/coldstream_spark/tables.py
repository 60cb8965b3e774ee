"""Tables by Spark: a streaming query of the data source into files, which ends with what is archived.

    {path}/stream={name}/date={YYYY-MM-DD}/part-….parquet      Spark's file sink; _spark_metadata says which files count
    {path}/_coldstream/checkpoint/                             Spark's checkpoint, unless it is to be elsewhere
    {path}/_coldstream/checkpoint/replay.json                  what the checkpoint is of

The checkpoint knows how far the table is, and the log of the sink which files of which batch are part of it. So a run
goes on where the one before ended, or was killed. Readers other than Spark see the files of failed tasks, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody knows it
from pyspark.sql.streaming.query import StreamingQuery

from coldstream.errors import InvalidQueryError
from coldstream.replay.source import Source
from coldstream.replay.tables.layout import FileFormat, PartitionColumn, Partitioning
from coldstream.replay.tables.transform import Transform
from coldstream_spark import register
from coldstream_spark.place import Place
from coldstream_spark.schema import COLUMNS, spark_schema

BATCH_BYTES = 4 << 30
"""Of chunks, in one micro-batch at most: what a run that is killed has to do again."""

_DAY_S = 86_400
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class TableJob:
    """A replay into a table: of which sources, and how. `asked` is the range as the user gave it."""

    sources: tuple[Source, ...]
    asked: tuple[str, str | None]
    path: str
    form: FileFormat
    partitioning: Partitioning
    checkpoint: str | None = None
    transform: Transform | None = None

    @property
    def checkpoint_path(self) -> str:
        """Where the checkpoint is."""
        return self.checkpoint or f"{self.path.rstrip('/')}/_coldstream/checkpoint"

    def start(self, spark: SparkSession, place: Place) -> StreamingQuery:
        """Start the query. Raises InvalidQueryError where the checkpoint is of another replay."""
        ends = self._claim(spark)
        register(spark)
        options = self._options(place)
        rows = spark.readStream.format("coldstream").options(**options).load()
        if ends is not None:
            rows = rows.where(_before(ends))
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

    def _options(self, place: Place) -> dict[str, str]:
        first = self.sources[0]
        starts = {source.stream.name: source.start or "earliest" for source in self.sources}
        options = {
            "streams": json.dumps(list(starts)),
            "vhost": first.stream.vhost,
            "startingOffsets": json.dumps(starts),
            "failOnDataLoss": str(not first.skip_gaps).lower(),
            "maxBytesPerTrigger": str(BATCH_BYTES),
            "table": place.table,
            "bucket": place.bucket,
        }
        if len(self.sources) == 1:
            options["incarnation"] = first.stream.incarnation
        endpoint = dict(place.variables).get("AWS_ENDPOINT_URL")
        return options | ({"endpoint": endpoint} if endpoint else {})

    def _claim(self, spark: SparkSession) -> Mapping[str, int] | None:
        """Write down what the checkpoint is of, or check it; return where each stream ends, None for the tails."""
        start, end = self.asked
        settings: dict[str, Any] = {
            "streams": sorted(source.stream.name for source in self.sources),
            "vhost": self.sources[0].stream.vhost,
            "from": start,
            "to": end,
            "format": self.form,
            "partition_by": str(self.partitioning),
        }
        ends = None if end is None else {source.stream.name: source.end for source in self.sources}
        there = _read(spark, f"{self.checkpoint_path}/replay.json")
        if there is None:
            _write(spark, f"{self.checkpoint_path}/replay.json", json.dumps(settings | {"ends": ends}).encode())
            return ends
        found = json.loads(there)
        other = [name for name, value in settings.items() if found.get(name) != value]
        if other:
            was = ", ".join(f"{name} {found.get(name)}" for name in other)
            raise InvalidQueryError("--checkpoint", f"{self.checkpoint_path} is of another replay: {was}")
        known: Mapping[str, int] | None = found["ends"]
        return known


def follow(query: StreamingQuery, tell_s: float, tell: Callable[[str], None]) -> dict[str, int]:
    """Wait for a query's end, with a line every few seconds; return what it did. Raises StreamingQueryException."""
    batches: dict[int, int] = {}
    told = began = time.monotonic()
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            batches[progress.batchId] = progress.numInputRows
        now = time.monotonic()
        if now - told >= tell_s:
            told = now
            messages = sum(batches.values())
            tell(f"{messages:,} messages in {len(batches)} batches, {messages / (now - began):,.0f} a second")
    done = {number: rows for number, rows in batches.items() if rows}
    return {"messages": sum(done.values()), "batches": len(done)}


_COMPRESSION = {FileFormat.PARQUET: "zstd", FileFormat.JSONL: "none", FileFormat.JSONL_GZIP: "gzip"}


def _transformed(rows: DataFrame, transform: Transform) -> DataFrame:
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


def _before(ends: Mapping[str, int]) -> Column:
    return F.coalesce(
        *(F.when(F.col("stream") == name, F.col("offset") < end) for name, end in ends.items()), F.lit(False)
    )


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


def _read(spark: SparkSession, path: str) -> bytes | None:
    """Read a small file of whichever file system Hadoop has for the path."""
    files, name = _files(spark, path)
    if not files.exists(name):
        return None
    stream = files.open(name)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def _write(spark: SparkSession, path: str, content: bytes) -> None:
    files, name = _files(spark, path)
    stream = files.create(name, True)
    try:
        stream.write(bytearray(content))
    finally:
        stream.close()


def _files(spark: SparkSession, path: str) -> tuple[Any, Any]:
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001  PySpark has no files of its own
    name = jvm.org.apache.hadoop.fs.Path(path)
    return name.getFileSystem(context._jsc.hadoopConfiguration()), name  # noqa: SLF001
