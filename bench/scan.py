"""Rows per second of the data source for Spark, against Spark reading the same rows from Parquet."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.archive import archive
from bench.aws import BUCKET, sdk_environment
from bench.dynamodb import any_dynamodb
from bench.harness import LAYER, MB, MIB, ROOT, Aim, CannotMeasureError, Cell, Section, Stopwatch, in_child, say
from bench.load import stream
from bench.local_s3 import LocalS3
from bench.orders import make_orders
from bench.usage import tree_cpu_s
from coldstream.format.native import NATIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEGMENT_BYTES = 500_000_000
ROUNDS = 3
CORES = 2
COLUMNS = ("value", "stream", "offset", "chunk_timestamp")
READY = "no reading"
ORDER_BYTES = 380
AIMS = {"plain": 1.0, "with properties, all columns": 1.0, "compressed": 1.5}
"""Of Parquet's speed."""

HOW = f"""\
Spark scans streams of {SEGMENT_BYTES // MB} MB of JSON orders of about 400 bytes, archived by the upload function,
on {CORES} cores (`local[{CORES}]`, one session) into its `noop` sink, which takes every row and keeps none. Plain
orders are one data section and are read with the columns {", ".join(COLUMNS)}; those with properties
have four of AMQP's and four of their own, and are read with all columns. The compressed ones are plain ones after a
compaction (zstd-seekable). The baseline is the same scan of Parquet files that Spark has written of it (snappy, on the
local disk). The fragments come from an S3 without limits that shares the machine. Tasks decode with the native module
(docs/native.md); "in Python" is a second run without it, and its ratio that to the Parquet of the same run. One round
to warm up, then {ROUNDS} rounds, in turns; medians. The CPU seconds are those of Spark and its Python workers."""


def measure() -> Section:
    """Measure scans of plain orders, of some with properties, and of compressed ones."""
    if NATIVE is None:
        raise CannotMeasureError("the native module is not installed: make setup, with Rust")
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making segments")
        plain, rich = (
            make_orders(_subdirectory(directory, name), size_bytes=SEGMENT_BYTES, with_properties=name == "rich")
            for name in ("plain", "rich")
        )
        with LocalS3(warm_mib=4 * SEGMENT_BYTES // MIB) as s3:
            sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
            for number, segment in enumerate((plain, rich, plain)):
                archive([segment], stream(number), sdk, dynamodb.table)
            in_child("bench.compaction:compress", {"table": dynamodb.table, "number": 2}, sdk)
            say("scanning")
            paths = os.pathsep.join((str(ROOT), str(LAYER), str(ROOT / "spark"), *_native_path()))
            environment = {
                **sdk,
                "COLDSTREAM_BUCKET": BUCKET,
                "COLDSTREAM_TABLE": dynamodb.table,
                "PYTHONPATH": paths,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
            # A module of another contract is not used (format/native.py): so its place is taken for the second run.
            hidden = _subdirectory(directory, "hidden")
            (hidden / "_coldstream_native.py").write_text("CONTRACT = 0\n")
            environments = (environment, environment | {"PYTHONPATH": os.pathsep.join((str(hidden), paths))})
            runs = [in_child("bench.scan:scan", {"directory": directory}, each).answer for each in environments]
    rows = runs[0]["rows"]
    if runs[1]["rows"] != rows:
        raise CannotMeasureError(f"the scans do not have the same rows: {[run['rows'] for run in runs]}")
    natively, in_python = ({what: median(each) for what, each in run["seconds"].items()} for run in runs)
    table: list[tuple[Cell, ...]] = []
    aims = []
    for what, least in AIMS.items():
        parquet = f"{what}; Parquet"
        for name, seconds in ((what, natively), (f"{what}; in Python", in_python)):
            table.append(_row(name, rows[what], seconds[what], seconds[parquet] / seconds[what]))
        table.append(_row(parquet, rows[what], natively[parquet], 1.0))
        ratio = natively[parquet] / natively[what]
        aims.append(Aim(f"{what}: {least}x of Parquet, or more", f"{ratio:.2f}x", ratio >= least))
    spread = "; ".join(f"{what} {min(each):.1f} to {max(each):.1f}" for what, each in runs[0]["seconds"].items())
    return Section(
        title="Spark: scan",
        how=HOW,
        columns=("what", "rows/s", "MB/s of the archive", "of Parquet"),
        rows=tuple(table),
        notes=(
            f"Seconds, least and most: {spread}",
            f"CPU s: {'; '.join(f'{what} {median(each):.2f}' for what, each in runs[0]['cpu_s'].items())}",
            f'"{READY}": a source that hands Spark ready batches of as many bytes as plain orders have, as a limit',
            f"Rows: {rows['plain']:,}",
        ),
        aims=tuple(aims),
    )


def _row(name: str, rows: int, seconds: float, ratio: float) -> tuple[Cell, ...]:
    return name, rows / seconds, SEGMENT_BYTES / MB / seconds, ratio


def _subdirectory(directory: str, name: str) -> Path:
    path = Path(directory, name)
    path.mkdir()
    return path


def _native_path() -> tuple[str, ...]:
    """Return where the native module is, for the interpreters that Spark starts."""
    return () if NATIVE is None or NATIVE.__file__ is None else (str(Path(NATIVE.__file__).parent),)


def scan(directory: str) -> dict[str, dict[str, Any]]:
    """Scan streams and their Parquet in turns. Called by `harness.in_child`. Returns seconds, and rows."""
    from coldstream_spark import register  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from bench.ready_batches import ReadyBatches  # noqa: PLC0415  only this process needs Spark

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
    spark.dataSource.register(ReadyBatches)

    def archived(number: int, columns: str | None) -> DataFrame:
        reader = spark.read.format("coldstream").option("stream", stream(number).name)
        reader = reader.option("minPartitions", str(2 * CORES))
        return (reader if columns is None else reader.option("columns", columns)).load()

    contenders: dict[str, Callable[[], DataFrame]] = {}
    narrow = ",".join(COLUMNS)
    for number, (what, columns) in enumerate(zip(AIMS, (narrow, None, narrow), strict=True)):
        path = f"{directory}/{number}"
        archived(number, columns).write.mode("overwrite").parquet(path)
        contenders[what] = partial(archived, number, columns)
        contenders[f"{what}; Parquet"] = partial(spark.read.parquet, path)
    ready = {"rows": SEGMENT_BYTES // ORDER_BYTES, "valueBytes": ORDER_BYTES, "batchRows": 5000, "tasks": 2 * CORES}
    contenders[READY] = lambda: spark.read.format("ready").options(**{name: str(n) for name, n in ready.items()}).load()
    seconds: dict[str, list[float]] = {what: [] for what in contenders}
    cpu_s: dict[str, list[float]] = {what: [] for what in contenders}
    for number in range(ROUNDS + 1):
        for what, frame in contenders.items():
            cpu_began = tree_cpu_s(os.getpid())
            with Stopwatch() as stopwatch:
                frame().write.format("noop").mode("overwrite").save()
            if number:
                seconds[what].append(stopwatch.seconds)
                cpu_s[what].append(tree_cpu_s(os.getpid()) - cpu_began)
    rows = {what: frame().count() for what, frame in contenders.items() if what != READY}
    spark.stop()
    return {"seconds": seconds, "cpu_s": cpu_s, "rows": rows}
