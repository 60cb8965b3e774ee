"""Spark is optional, and bounded."""

from __future__ import annotations

from tests.support.cloudformation import EVERYTHING, Stack

OF_SPARK = {"SparkApplication", "SparkLogs", "SparkJobRole", "SparkFailuresRule", "SparkFailuresRole"}


def test_without_spark_there_is_nothing_of_it(stack: Stack) -> None:
    assert not any("Spark" in name for name in (*stack.resources, *stack.outputs))


def test_with_spark_everything_else_is_as_it_was(stack: Stack) -> None:
    with_spark = Stack(WithSpark="true")
    assert with_spark.resources.keys() - stack.resources.keys() == OF_SPARK
    others = stack.resources.keys() - {"JobTickFunction"}  # whose variables name the application
    assert {name: with_spark.resources[name] for name in others} == {name: stack.resources[name] for name in others}


def test_scripts_lie_beside_the_archive_under_its_prefix(whole: Stack) -> None:
    assert whole.outputs["SparkFiles"] == f"s3://{whole.ref('Bucket')}/{EVERYTHING['Prefix']}spark/"


def test_the_application_costs_nothing_while_idle_and_ends_at_a_bound(whole: Stack) -> None:
    application = whole.properties("SparkApplication")
    assert application["AutoStopConfiguration"]["Enabled"] is True
    assert application["MaximumCapacity"].keys() == {"Cpu", "Memory", "Disk"}
    assert "InitialCapacity" not in application


def test_its_log_is_ours(whole: Stack) -> None:
    log = whole.properties("SparkApplication")["MonitoringConfiguration"]["CloudWatchLoggingConfiguration"]
    assert log == {"Enabled": True, "LogGroupName": whole.ref("SparkLogs")}


def test_jobs_reach_a_bucket_for_tables_only_where_one_is_named() -> None:
    without, named = Stack(WithSpark="true"), Stack(WithSpark="true", SparkTablesBucket="tables")
    assert "arn:aws:s3:::tables" not in str(without.properties("SparkJobRole"))
    assert "arn:aws:s3:::tables/*" in str(named.properties("SparkJobRole"))
    assert without.resources.keys() == named.resources.keys()
