"""The data source `coldstream`: the archive as rows, for batch and streaming queries, and for the replay job.

    datasource.py   what Spark calls: batch queries; streaming.py, limits.py, positions.py: streaming queries
    options.py      the options of a query; location.py: where its archive is
    plan.py         streams and offsets, cut into partitions (packing.py); filters.py: conditions that narrow them
    read_task.py    what an executor reads; counts.py: how many messages there are, by the manifest
    tables.py       a streaming query into files: replay.py --to-parquet; checkpoint.py, summary.py: how far it is

Spark finds the source by itself if these packages are on the path that it was started with (pyspark_coldstream). If
they came with `--py-files`, call register(spark). What can be done without Spark belongs into the package coldstream.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import coldstream
from coldstream.terminal.extras import missing_extra

try:
    from pyspark.errors import AnalysisException

    from coldstream_spark.datasource import ColdstreamDataSource
except ModuleNotFoundError as err:
    if (missing := missing_extra(err, "spark")) is None:
        raise
    raise missing from err

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ColdstreamDataSource", "register"]

_PATH = "PYTHONPATH"


def register(spark: SparkSession) -> None:
    """Register the data source with a session.

    The processes in which Spark plans streaming queries do not see what came with `--py-files`. So their PYTHONPATH
    gets the paths from which these packages were imported.
    """
    context = getattr(spark, "sparkContext", None)  # a client of Spark Connect has none, and starts no processes
    if context is not None:
        paths = [str(Path(module).parents[1]) for module in (__file__, coldstream.__file__)]
        known = context.environment.get(_PATH, "").split(os.pathsep)
        context.environment[_PATH] = os.pathsep.join(filter(None, dict.fromkeys([*known, *paths])))
    try:
        spark.dataSource.register(ColdstreamDataSource)
    except AnalysisException as err:
        if err.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # Spark 4.0, where it has found the source itself
            raise
