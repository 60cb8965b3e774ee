"""Rows per second of the data source for Spark, against Spark reading the same rows from Parquet."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.archive import archive
from bench.aws import BUCKET, sdk_environment
from bench.dynamodb import any_dynamodb
from bench.harness import LAYER, MB, MIB, ROOT, Aim, CannotMeasureError, Cell, Section, Stopwatch, in_child, say
from bench.load import stream
from bench.local_s3 import LocalS3
from bench.orders import make_orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_BYTES = 500_000_000
ROUNDS = 3
CORES = 2
COLUMNS = ("value", "stream", "offset", "chunk_timestamp")
SOURCE, PARQUET, ALL, ALL_PARQUET = (
    "data source",
    "Parquet",
    "data source, all columns",
    "Parquet, all columns",
)

HOW = f"""\
Spark scans a stream of {SEGMENT_BYTES // MB} MB of JSON orders of about 400 bytes, archived by the upload function,
on {CORES} cores (`local[{CORES}]`, one session) into its `noop` sink, which takes every row and keeps none: with
the columns {", ".join(COLUMNS)}, and with all. The baseline is the same scan of Parquet files that Spark has
written of it (snappy, on the local disk). The fragments come from an S3 without limits that shares the machine. One
round to warm up, then {ROUNDS} rounds, in turns; medians."""


def measure() -> Section:
    """Measure scans of four columns, and of all."""
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making a segment")
        segment = make_orders(Path(directory), size_bytes=SEGMENT_BYTES)
        with LocalS3(warm_mib=2 * SEGMENT_BYTES // MIB) as s3:
            sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
            archive([segment], stream(0), sdk, dynamodb.table)
            say("scanning")
            paths = os.pathsep.join((str(ROOT), str(LAYER), str(ROOT / "spark")))
            environment = {
                **sdk,
                "COLDSTREAM_BUCKET": BUCKET,
                "COLDSTREAM_TABLE": dynamodb.table,
                "PYTHONPATH": paths,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
            run = in_child("bench.scan:scan", {"name": stream(0).name, "directory": directory}, environment)
    rows, seconds = run.answer["rows"], run.answer["seconds"]
    if len(set(rows.values())) != 1:
        raise CannotMeasureError(f"the scans do not have the same rows: {rows}")
    medians = {what: sorted(each)[len(each) // 2] for what, each in seconds.items()}
    ratios = {SOURCE: medians[PARQUET] / medians[SOURCE], ALL: medians[ALL_PARQUET] / medians[ALL]}
    table: list[tuple[Cell, ...]] = [
        (what, rows[what] / medians[what], segment.size_bytes / MB / medians[what], ratios.get(what, 1.0))
        for what in medians
    ]
    spread = "; ".join(f"{what} {min(each):.1f} to {max(each):.1f}" for what, each in seconds.items())
    return Section(
        title="Spark: scan",
        how=HOW,
        columns=("what", "rows/s", "MB/s of the archive", "of Parquet"),
        rows=tuple(table),
        notes=(f"Seconds, least and most: {spread}", f"Rows: {rows[SOURCE]:,}"),
        aims=(Aim("0.7x of Parquet, or more; four columns", f"{ratios[SOURCE]:.2f}x", ratios[SOURCE] >= 0.7),),
    )


def scan(name: str, directory: str) -> dict[str, dict[str, Any]]:
    """Scan a stream and its Parquet in turns. Called by `harness.in_child`. Returns seconds, and rows."""
    from coldstream_spark import register  # noqa: PLC0415  only this process needs Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark: SparkSession = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.local.dir", directory)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    register(spark)

    def archived(columns: str | None = None) -> DataFrame:
        reader = spark.read.format("coldstream").option("stream", name).option("minPartitions", str(2 * CORES))
        return (reader if columns is None else reader.option("columns", columns)).load()

    narrow = ",".join(COLUMNS)
    archived(narrow).write.parquet(f"{directory}/narrow")
    archived().write.parquet(f"{directory}/all")
    contenders: dict[str, Callable[[], DataFrame]] = {
        SOURCE: lambda: archived(narrow),
        PARQUET: lambda: spark.read.parquet(f"{directory}/narrow"),
        ALL: archived,
        ALL_PARQUET: lambda: spark.read.parquet(f"{directory}/all"),
    }
    seconds: dict[str, list[float]] = {what: [] for what in contenders}
    for number in range(ROUNDS + 1):
        for what, frame in contenders.items():
            with Stopwatch() as stopwatch:
                frame().write.format("noop").mode("overwrite").save()
            if number:
                seconds[what].append(stopwatch.seconds)
    rows = {what: frame().count() for what, frame in contenders.items()}
    spark.stop()
    return {"seconds": seconds, "rows": rows}
