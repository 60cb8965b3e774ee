"""How Spark comes to know the source: by its name, without anybody registering it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark import register
from pyspark_coldstream import DefaultSource

from tests.support.fixtures import do_without
from tests.support.server import ROOT
from tests.support.source import Emulated
from tests.support.spark import FOREIGN, environment, settings, spark_version

CONNECT_IS_TRIED_WITH = (4, 0)
"""Whose environment has its client (requirements-spark40.txt): that needs pandas, which nothing else does."""

WITHOUT_ARROW = """
import sys
sys.modules["pyarrow"] = None
import pyspark_coldstream
print(hasattr(pyspark_coldstream, "DefaultSource"))
"""

CLIENT = """
import sys
from pyspark.sql import SparkSession

table, bucket, *settings = sys.argv[1:]
builder = SparkSession.builder.remote("local[2]")
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
frame = spark.read.format("coldstream").options(stream="orders", table=table, bucket=bucket).load()
print(type(spark).__module__, frame.where("offset >= 10").count())
from coldstream_spark import register
register(spark)
print(spark.read.format("coldstream").options(stream="orders", table=table, bucket=bucket).load().count())
"""


def test_a_session_that_nobody_registered_it_with_finds_it_by_its_name(spark: Any, orders: Emulated) -> None:
    fresh = spark.newSession()
    assert fresh.read.format("coldstream").options(**orders.options, stream="orders").load().count() == 40


def test_registering_what_spark_has_found_changes_nothing(spark: Any, orders: Emulated) -> None:
    fresh = spark.newSession()
    for _ in range(2):
        register(fresh)
        assert fresh.read.format("coldstream").options(**orders.options, stream="orders").load().count() == 40


def test_without_what_it_needs_it_is_not_there_and_takes_nothing_else_away() -> None:
    """Spark gives up all sources that it finds where one of them cannot be imported."""
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT_ARROW,
        ],
        env=os.environ | environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout == "False\n"
    assert "pip install 'coldstream[spark]'" in child.stderr


def test_its_name_is_the_formats() -> None:
    assert DefaultSource.name() == "coldstream"


@pytest.mark.skipif(spark_version() != CONNECT_IS_TRIED_WITH, reason="tried with Spark 4.0, by the same command")
def test_a_client_of_spark_connect_reads_by_it(aws: str, orders: Emulated, tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc") is None:
        do_without("Spark Connect's client", "make .venv-spark40/.ready")
    given = [f"{name}={value}" for name, value in settings(tmp_path).items() if name != "spark.master"]
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    child = subprocess.run(
        [sys.executable, "-c", CLIENT, *orders.options.values(), *given],
        env=kept | environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.stdout.splitlines() == ["pyspark.sql.connect.session 30", "40"], child.stderr
