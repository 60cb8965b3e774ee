"""The retention function: applies the policies of an archive to its streams, on a schedule."""

from __future__ import annotations

import os
from contextlib import closing
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.lifecycle.retention import RetentionReport, run_retention, summary_of
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.stream import StreamId
from coldstream.store.grace import grace_ms
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import METRICS_NAMESPACE, Settings
from coldstream.store.streams import streams_in_turn
from coldstream.store.table import DynamoTable

STOP_BEFORE_MS = 60_000
"""Time that is left when the run begins nothing more: one batch, or one object of a few gigabytes that is copied."""

logger = Logger(service="coldstream-retention")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="retention")


@cache
def stores() -> LifecycleStores:
    """Open the archive at the first event of this execution environment, which keeps its connections."""
    settings = Settings.from_environment()
    table, objects = DynamoTable(settings.table), S3Objects(settings.bucket)
    return LifecycleStores.open(table, objects, Keys(settings.prefix), grace_ms=grace_ms(settings.url_expiry_s))


def _is_dry_run() -> bool:
    """Whether to report only: whatever the setting says but `delete`."""
    return os.environ.get("COLDSTREAM_RETENTION") != "delete"


def _names(stream: StreamId) -> dict[str, Any]:
    return {"vhost": stream.vhost, "stream": stream.name, "incarnation": stream.incarnation}


def _tell(report: RetentionReport) -> None:
    """Log what was done to a stream, if there is anything to tell."""
    if report.error is not None:
        logger.error(
            "failed",
            **_names(report.stream),
            error=str(report.error),
            policy=report.policy,
            retryable=report.error.retryable,
        )
    elif report.removal.held is not None:
        logger.warning("held", **_names(report.stream), policy=report.policy, hold=report.removal.held.id)
    elif report.removal.fragments or report.moves.objects:
        logger.info(
            "would be removed" if report.is_dry_run else "removed",
            **_names(report.stream),
            policy=report.policy,
            objects=report.removal.fragments,
            object_bytes=report.removal.object_bytes,
            first_offset=report.removal.first_offset,
            moved=report.moves.objects,
        )


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001  a schedule's
    """Apply the policies, and return the summary without the streams. What is left when time is up, the next run does.

    Raises the error of a stream at the end, so that the alarm rings: the other streams were done by then.
    """
    archive = stores()
    reports = []
    with closing(streams_in_turn(archive.table, "retention")) as streams:
        for report in run_retention(
            archive,
            streams,
            dry_run=_is_dry_run(),
            should_stop=lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS,
        ):
            _tell(report)
            if report.policy is not None:
                reports.append(report)
    summary = {name: value for name, value in summary_of(reports).items() if name != "streams"}
    is_done = not _is_dry_run()
    metrics.add_metric("FragmentsRemoved", MetricUnit.Count, summary["objects"] if is_done else 0)
    metrics.add_metric("BytesRemoved", MetricUnit.Bytes, summary["object_bytes"] if is_done else 0)
    logger.info("done", **summary)
    for report in reports:
        if report.error is not None:
            raise report.error
    return summary
