"""The erase function: goes on with erasures that were interrupted, on a schedule. It begins none."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.erase.resume import ResumedErasure, resume_erasures
from coldstream.erase.run import Eraser
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.grace import grace_ms
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import METRICS_NAMESPACE, Settings
from coldstream.store.streams import streams_in_turn
from coldstream.store.table import DynamoTable

STOP_BEFORE_MS = 60_000
"""Time that is left when the run begins nothing more. A fragment that is under way is given up, and begun anew."""

logger = Logger(service="coldstream-erase")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="erase")


@cache
def settings() -> Settings:
    """Read the settings at the first event of this execution environment."""
    return Settings.from_environment()


@cache
def stores() -> LifecycleStores:
    """Open the archive at the first event of this execution environment, which keeps its connections."""
    table, objects = DynamoTable(settings().table), S3Objects(settings().bucket)
    return LifecycleStores.open(table, objects, Keys(settings().prefix), grace_ms=grace_ms(settings().url_expiry_s))


def _tell(one: ResumedErasure) -> None:
    """Log what became of an erasure. Its selection has digests of values, and is left out all the same."""
    facts: dict[str, Any] = {
        "vhost": one.stream.vhost,
        "stream": one.stream.name,
        "incarnation": one.stream.incarnation,
        "erasure": one.erasure.id,
        "by": one.erasure.by,
    }
    if one.error is not None:
        logger.error("failed", **facts, error=str(one.error), retryable=one.error.retryable)
    elif one.report is None:
        logger.warning("needs a function of its user: `coldstream erase --resume --where`", **facts)
    else:
        logger.info(
            "done" if one.report.is_done else "goes on with the next run",
            **facts,
            messages=one.report.messages,
            fragments=one.report.fragments,
            reached=one.report.erasure.reached,
        )


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001  a schedule's
    """Go on with all erasures, and return how many are done, and how many are left.

    Raises the first error at the end, so that the alarm rings: the others were tried by then.
    """
    spool_dir = settings().spool_dir
    eraser = Eraser(
        stores(),
        spool_dir=Path(spool_dir) if spool_dir else None,
        should_stop=lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS,
    )
    resumed = []
    with closing(streams_in_turn(eraser.stores.table, "erase")) as streams:
        for one in resume_erasures(eraser, streams):
            _tell(one)
            resumed.append(one)
    reports = [one.report for one in resumed if one.report is not None]
    done = sum(report.is_done for report in reports)
    erased = sum(report.messages for report in reports)
    metrics.add_metric("MessagesErased", MetricUnit.Count, erased)
    metrics.add_metric("ErasuresUnfinished", MetricUnit.Count, len(resumed) - done)
    for one in resumed:
        if one.error is not None:
            raise one.error
    return {"done": done, "unfinished": len(resumed) - done, "messages": erased}
