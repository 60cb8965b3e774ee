"""The sweep function: deletes objects whose time has come, purges deleted streams, mirrors holds, on a schedule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.errors import UnavailableError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.tend import TendReport, foretell_tending, summary_of, tend
from coldstream.manifest.stream import StreamId
from coldstream.store.grace import grace_ms
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import METRICS_NAMESPACE, Settings
from coldstream.store.streams import streams_in_turn
from coldstream.store.table import DynamoTable

STOP_BEFORE_MS = 180_000
"""Time that is left when the run begins nothing more: of a thousand objects whose versions go, each is listed first."""

logger = Logger(service="coldstream-sweep")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="sweep")


@cache
def stores() -> LifecycleStores:
    """Open the archive at the first event of this execution environment, which keeps its connections."""
    settings = Settings.from_environment()
    table, objects = DynamoTable(settings.table), S3Objects(settings.bucket)
    return LifecycleStores.open(table, objects, Keys(settings.prefix), grace_ms=grace_ms(settings.url_expiry_s))


def _may_delete() -> bool:
    return os.environ.get("COLDSTREAM_SWEEP") == "delete"


def _run(archive: LifecycleStores, streams: Iterable[StreamId], context: LambdaContext) -> Iterator[TendReport]:
    run = tend if _may_delete() else foretell_tending
    return run(archive, streams, should_stop=lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS)


def _names(stream: StreamId) -> dict[str, Any]:
    return {"vhost": stream.vhost, "stream": stream.name, "incarnation": stream.incarnation}


def _tell(report: TendReport) -> None:
    """Log what was done for a stream."""
    if report.error is not None:
        logger.error("failed", **_names(report.stream), error=str(report.error), retryable=report.error.retryable)
    for key in report.swept.kept:
        logger.warning("not deleted, because the manifest names it", **_names(report.stream), key=key)
    for failure in report.failures:
        logger.warning("not deleted", **_names(report.stream), key=failure.key, reason=failure.reason)
    logger.info(
        "swept",
        **_names(report.stream),
        objects=report.objects,
        object_bytes=report.object_bytes,
        held=report.swept.held,
        refused=report.swept.refused,
        locked=report.locks.locked,
        released=report.locks.released,
        purge=report.purge.state,
    )


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001  a schedule's
    """Tend every stream, and return the summary without the streams. What is left when time is up, the next run does.

    Raises the error of a stream at the end, so that the alarm rings: the other streams were done by then. Raises
    UnavailableError if the store refused to delete something: the bytes of erased messages may be among it.
    """
    reports = []
    with closing(streams_in_turn(stores().table, "sweep")) as streams:
        for report in _run(stores(), streams, context):
            if report.has_news:
                _tell(report)
                reports.append(report)
    summary = {name: value for name, value in summary_of(reports).items() if name != "streams"}
    refused = sum(report.swept.refused for report in reports)
    metrics.add_metric("ObjectsDeleted", MetricUnit.Count, summary["objects"] if _may_delete() else 0)
    metrics.add_metric("BytesDeleted", MetricUnit.Bytes, summary["object_bytes"] if _may_delete() else 0)
    metrics.add_metric("ObjectsRefused", MetricUnit.Count, refused)
    logger.info("done", may_delete=_may_delete(), refused=refused, **summary)
    for report in reports:
        if report.error is not None:
            raise report.error
    for failure in (failure for report in reports for failure in report.failures):
        raise UnavailableError(f"not all that is due was done, the first is {failure.key}: {failure.reason}")
    return summary
