"""The tests' own Spark: complete, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.server import ROOT
from tests.support.spark import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTS_AND_ENDS = """
import sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from tests.support.spark import end_java, settings

configuration = SparkConf(loadDefaults=False).setAll(list(settings(Path(sys.argv[1])).items()))
SparkContext(conf=configuration, appName="ends")
java = SparkContext._gateway.proc
end_java()
print(java.returncode is not None)
"""


def test_workers_are_this_python_with_the_sources_and_find_the_emulated_aws(spark: SparkSession) -> None:
    def look(_: Iterator[int]) -> Iterator[tuple[str, str, str]]:
        import coldstream  # noqa: PLC0415  where the worker finds it

        yield sys.executable, str(coldstream.__file__), os.environ["AWS_ENDPOINT_URL"]

    found = spark.sparkContext.parallelize([1, 2], 2).mapPartitions(look).collect()
    source = str(ROOT / "layers/coldstream/python/coldstream/__init__.py")
    assert found == [(sys.executable, source, os.environ["AWS_ENDPOINT_URL"])] * 2


def test_its_time_zone_is_utc(spark: SparkSession) -> None:
    assert spark.sql("SELECT string(timestamp_millis(0))").first() == ("1970-01-01 00:00:00",)


def test_its_java_is_gone_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", STARTS_AND_ENDS, str(tmp_path)],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.stdout, child.returncode) == ("True\n", 0), child.stderr
