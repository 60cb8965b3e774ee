"""The data source `coldstream`: the archive as rows, for batch and for streaming queries.

register(spark) makes `spark.read.format("coldstream")` and `spark.readStream` know it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import coldstream
from coldstream.extras import missing_extra

try:
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
    places = [str(Path(module).parents[1]) for module in (__file__, coldstream.__file__)]
    environment = spark.sparkContext.environment
    known = environment.get(_PATH, "").split(os.pathsep)
    environment[_PATH] = os.pathsep.join(filter(None, dict.fromkeys([*known, *places])))
    spark.dataSource.register(ColdstreamDataSource)
