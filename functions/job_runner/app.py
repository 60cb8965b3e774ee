"""The job runner: a message names a job, and as much of it is done as there is time for; then it calls itself again."""

from __future__ import annotations

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.dispatch.job_queue import JobQueue, SqsJobQueue, job_of
from coldstream.dispatch.job_slice import MessageOutcome, SliceReport, run_slice
from coldstream.dispatch.settings import DispatchSettings
from coldstream.errors import InvalidSettingError
from coldstream.jobs.store import JobStore
from coldstream.runtime.package_log import log_with
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import METRICS_NAMESPACE
from coldstream.upkeep.archive import UpkeepArchive

logger = Logger(service="coldstream-jobs")
log_with(logger)
metrics = Metrics(namespace=METRICS_NAMESPACE, service="jobs")


@cache
def archive() -> UpkeepArchive:
    """Open the archive at the first message of this execution environment, which keeps its connections."""
    return UpkeepArchive.open(OpenArchive.of_environment())


@cache
def queue() -> JobQueue:
    """Open the queue at the first message of this execution environment."""
    url = DispatchSettings.from_environment().queue_url
    if url is None:
        raise InvalidSettingError("COLDSTREAM_JOBS_QUEUE", "is not set")
    return SqsJobQueue(url)


def _tell(job_id: str, report: SliceReport) -> None:
    """Log what became of a message, and count what has failed."""
    job = report.job
    facts: dict[str, Any] = {"job": job_id, "outcome": report.outcome, "continued": report.is_continued}
    if job is not None:
        facts |= {"kind": job.kind, "state": job.state, "reason": job.reason, "done": job.progress.done}
    tell = logger.error if report.has_failed else logger.info
    tell("a slice", **facts)
    metrics.add_metric("JobSlices", MetricUnit.Count, int(report.outcome is MessageOutcome.RAN))
    metrics.add_metric("JobFailures", MetricUnit.Count, int(report.has_failed))


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run the jobs that the messages name, and return the messages that are to come again.

    A message that names no job fails, and ends in the dead-letter queue; one about a job that is gone, not due, or
    another's is done with.
    """
    failed = []
    for record in event["Records"]:
        try:
            job_id = job_of(record["body"])
            stores = archive().stores
            report = run_slice(
                JobStore(stores.table, stores.now),
                archive(),
                queue(),
                job_id,
                worker=context.aws_request_id,
                remaining_ms=context.get_remaining_time_in_millis,
            )
        except Exception:
            # Whatever it is, the message comes again, and at last to the dead-letter queue.
            logger.exception("failed", message_id=record["messageId"])
            failed.append({"itemIdentifier": record["messageId"]})
            metrics.add_metric("JobSlices", MetricUnit.Count, 0)
            continue
        _tell(job_id, report)
    return {"batchItemFailures": failed}
