"""The job tick: once a minute, it sees that the jobs of Lambdas and of EMR go on, and counts all jobs that are open."""

from __future__ import annotations

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit, single_metric
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.dispatch.dispatcher import Dispatcher
from coldstream.dispatch.tick import TickReport, gauges
from coldstream.runtime.package_log import log_with
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import METRICS_NAMESPACE

STOP_BEFORE_MS = 10_000
"""Time that is left when no more jobs are looked at."""

logger = Logger(service="coldstream-jobs")
log_with(logger)
metrics = Metrics(namespace=METRICS_NAMESPACE, service="jobs")


@cache
def dispatcher() -> Dispatcher:
    """Open queue and EMR, so far as they are configured, at the first event. It remembers who runs what."""
    return Dispatcher.of_environment(OpenArchive.of_environment())


def _count(report: TickReport) -> None:
    for state, count in gauges(report).items():
        with single_metric("JobsByState", MetricUnit.Count, count, namespace=METRICS_NAMESPACE) as metric:
            metric.add_dimension("service", "jobs")
            metric.add_dimension("State", state)
    metrics.add_metric("JobMessages", MetricUnit.Count, report.messages)
    metrics.add_metric("JobBytes", MetricUnit.Bytes, report.bytes)
    metrics.add_metric("JobsSkipped", MetricUnit.Count, report.skipped)
    metrics.add_metric("JobFailures", MetricUnit.Count, report.failed)
    if report.lag_ms is not None:
        metrics.add_metric("JobLagMs", MetricUnit.Milliseconds, report.lag_ms)


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001  a schedule's
    """Look at all open jobs, and return what was done about them."""
    report = dispatcher().tick(lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS)
    for problem in report.problems:
        logger.warning(problem)
    _count(report)
    done: dict[str, Any] = {
        "sent": report.sent,
        "started": report.started,
        "followed": report.followed,
        "failed": report.failed,
    }
    logger.info("done", **done, states=report.states, problems=len(report.problems))
    return done
