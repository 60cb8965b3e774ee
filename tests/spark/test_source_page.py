"""The examples of docs/spark-source.md, as they stand, one after another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")

from coldstream_spark.options import NAMES
from coldstream_spark.schema import COLUMNS

from coldstream.rows.schema import PROPERTIES
from tests.support.server import ROOT
from tests.support.source import Emulated

PAGE = ROOT / "docs/spark-source.md"
OPTIONS = re.compile(r"^\| (`[^|]*) \|", re.MULTILINE)


def test_every_example_runs(spark: Any, orders: Emulated, tmp_path: Path) -> None:
    names = {
        "spark": spark,
        "TABLE": orders.options["table"],
        "BUCKET": orders.options["bucket"],
        "DIRECTORY": str(tmp_path),
    }
    answers = []
    for kind, example in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(compile(example, PAGE.name, "exec"), names)
        else:
            assert kind == "sql"
            answers.append([tuple(row) for row in spark.sql(example.format(**names)).collect()])
    assert [len(rows) for rows in answers] == [1, 3, 1, 0, 6]
    assert answers[0][0][:4] == ("orders", 40, 0, 39)
    assert [row[0] for row in answers[1]] == [3, 4, 5]


def test_the_page_has_every_option_and_column() -> None:
    told = set(re.findall(r"`(\w+)`", " ".join(OPTIONS.findall(PAGE.read_text()))))
    assert {*NAMES, *COLUMNS} <= told
    assert all(f"`{name}`" in PAGE.read_text() for name in PROPERTIES)
