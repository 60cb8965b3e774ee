"""The data source `coldstream`: the archive as rows, for batch and for streaming queries.

Where these packages are on the path that Spark was started with, it finds the source by itself (pyspark_coldstream).
Where they came with `--py-files`, register(spark) makes `spark.read` and `spark.readStream` know it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import coldstream
from coldstream.console.extras import missing_extra

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
    """Make a session know the data source.

    The processes in which Spark plans streaming queries do not look at what came with `--py-files`. So they are told
    where these packages were imported from.
    """
    context = getattr(spark, "sparkContext", None)  # a client of Spark Connect has none, and no processes either
    if context is not None:
        places = [str(Path(module).parents[1]) for module in (__file__, coldstream.__file__)]
        known = context.environment.get(_PATH, "").split(os.pathsep)
        context.environment[_PATH] = os.pathsep.join(filter(None, dict.fromkeys([*known, *places])))
    try:
        spark.dataSource.register(ColdstreamDataSource)
    except AnalysisException as err:
        if err.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # Spark 4.0, where it has found the source itself
            raise
