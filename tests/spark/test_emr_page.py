"""What the commands of docs/spark.md set for EMR."""

from __future__ import annotations

import re

import pytest

from coldstream.local.template import load_document
from tests.support.aws import TEMPLATE
from tests.support.server import ROOT

PAGE = (ROOT / "docs/spark.md").read_text()
SERVERLESS = dict(re.findall(r"--conf ([\w.-]+)=(\S+)", PAGE.partition("<<END")[2].partition("    END")[0]))
CLUSTER = dict(re.findall(r'"--conf", "([\w.-]+)=([^"]+)"', PAGE.partition("add-steps")[2]))
WORKER_MB = 330
"""Of each core's Python worker, as measured."""

JAVA_MB = 512
"""Of Java itself, outside of its heap."""


@pytest.mark.parametrize(
    ("settings", "driver"),
    [(SERVERLESS, "spark.emr-serverless.driverEnv"), (CLUSTER, "spark.yarn.appMasterEnv")],
    ids=["serverless", "cluster"],
)
def test_every_process_has_interpreter_packages_region_and_memory(settings: dict[str, str], driver: str) -> None:
    interpreters = [
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        f"{driver}.PYSPARK_PYTHON",
        f"{driver}.PYSPARK_DRIVER_PYTHON",
        "spark.executorEnv.PYSPARK_PYTHON",
    ]
    assert {settings[name] for name in interpreters} == {"python3.11"}
    for process in (driver, "spark.executorEnv"):
        assert settings[f"{process}.PYTHONPATH"] == "./dependencies"
        assert "region" in settings[f"{process}.AWS_DEFAULT_REGION"]
    cores = int(settings["spark.executor.cores"])
    assert mb(settings["spark.executor.memoryOverhead"]) >= cores * WORKER_MB + JAVA_MB
    assert mb(settings["spark.driver.memoryOverhead"]) >= 3 * WORKER_MB + JAVA_MB  # the script, and two that plan


def test_what_is_asked_for_is_what_emr_has_the_template_allows_and_the_page_reckons_with() -> None:
    cores = {name: int(SERVERLESS[f"spark.{name}.cores"]) for name in ("driver", "executor")}
    memory = {
        name: (mb(SERVERLESS[f"spark.{name}.memory"]) + mb(SERVERLESS[f"spark.{name}.memoryOverhead"])) // 1024
        for name in cores
    }
    assert 4 <= memory["driver"] <= 16  # what there is for 2 vCPU
    assert 8 <= memory["executor"] <= 30  # and for 4
    initial, most = (int(SERVERLESS[f"spark.dynamicAllocation.{name}Executors"]) for name in ("initial", "max"))
    assert initial <= most
    allowed = load_document(TEMPLATE)["Resources"]["SparkApplication"]["Properties"]["MaximumCapacity"]
    assert cores["driver"] + most * cores["executor"] <= int(allowed["Cpu"].removesuffix(" vCPU"))
    assert memory["driver"] + most * memory["executor"] <= int(allowed["Memory"].removesuffix(" GB"))
    assert f"{cores['driver']} vCPU, {memory['driver']} GB with its overhead" in PAGE
    assert f"{cores['executor']} vCPU, {memory['executor']} GB" in PAGE


def mb(text: str) -> int:
    return int(text.removesuffix("g")) * 1024
