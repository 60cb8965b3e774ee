"""The job tick: once a minute, it sees that the jobs of Lambdas and of EMR go on, and counts all jobs that are open."""

from __future__ import annotations

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit, single_metric
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.dispatch.emr_jobs import EmrJobs
from coldstream.dispatch.emr_run import EmrServerless
from coldstream.dispatch.job_queue import JobQueue, SqsJobQueue
from coldstream.dispatch.runner import Runner
from coldstream.dispatch.settings import DispatchSettings
from coldstream.dispatch.tick import TickReport, gauges, tick
from coldstream.jobs.store import JobStore
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import METRICS_NAMESPACE

STOP_BEFORE_MS = 10_000
"""Time that is left when no more jobs are looked at."""

logger = Logger(service="coldstream-jobs")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="jobs")


@cache
def archive() -> OpenArchive:
    """Open the archive at the first event of this execution environment, which keeps its connections."""
    return OpenArchive.of_environment()


@cache
def queue() -> JobQueue | None:
    """Open the queue at the first event, if one is configured."""
    url = DispatchSettings.from_environment().queue_url
    return None if url is None else SqsJobQueue(url)


@cache
def emr() -> EmrJobs | None:
    """Open EMR at the first event, if it is configured."""
    settings, opened = DispatchSettings.from_environment().emr, archive()
    if settings is None:
        return None
    store = JobStore(opened.table, opened.objects.clock)
    return EmrJobs(store, opened.table, EmrServerless(settings, opened.settings), opened.settings.url_expiry_s)


@cache
def chosen() -> dict[str, Runner]:
    """Return what this execution environment remembers of who runs what."""
    return {}


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
    opened = archive()
    clock = opened.objects.clock
    report = tick(
        JobStore(opened.table, clock),
        opened.table,
        clock(),
        queue(),
        emr(),
        should_stop=lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS,
        chosen=chosen(),
    )
    for problem in report.problems:
        logger.warning(problem)
    _count(report)
    done = {"sent": report.sent, "started": report.started, "followed": report.followed, "failed": report.failed}
    logger.info("done", **done, states=report.states, problems=len(report.problems))
    return done
