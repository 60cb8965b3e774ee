"""The garbage function: looks through the bucket on a schedule, reports what belongs to nothing, and may delete it."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.errors import UnavailableError
from coldstream.garbage.cursor import BY_SCHEDULE, GarbageCursor
from coldstream.garbage.kinds import ObjectState
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.report import GarbageReport
from coldstream.garbage.run import GarbageCollector
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import METRICS_NAMESPACE, Settings
from coldstream.store.table import DynamoTable

STOP_BEFORE_MS = 180_000
"""Time that is left when the run begins nothing more: the proof and the deletions of one window, with retries."""

logger = Logger(service="coldstream-garbage")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="garbage")


@cache
def collector() -> GarbageCollector:
    """Open the archive at the first event of this execution environment, which keeps its connections."""
    settings = Settings.from_environment()
    table, objects = DynamoTable(settings.table), S3Objects(settings.bucket)
    cursor = GarbageCursor(table, BY_SCHEDULE)
    return GarbageCollector(table, objects, Keys(settings.prefix), objects.clock, cursor)


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001  a schedule's
    """Go through the bucket, or go on where the last run stopped, and return the report.

    Raises UnavailableError at the end, so that the alarm rings, if the store refused to delete something.
    """
    options = GarbageOptions(delete=os.environ.get("COLDSTREAM_GARBAGE") == "delete")
    report = collector().run(options, should_stop=lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS)
    _report(report)
    if report.deletions.failed:
        key, reason = report.deletions.failures[0]
        raise UnavailableError(f"{report.deletions.failed} objects were not deleted, the first is {key}: {reason}")
    return report.to_json()


def _report(report: GarbageReport) -> None:
    """Log what was found. Metrics are of whole passes: half of one would look like an archive that was cleaned."""
    garbage, unknown = report.total(ObjectState.GARBAGE), report.total(ObjectState.UNKNOWN)
    tell = logger.warning if report.deletions.failed else logger.info
    tell(
        "garbage" if report.is_complete else "garbage, so far",
        delete=report.delete,
        objects=report.objects,
        garbage_objects=garbage.objects,
        garbage_bytes=garbage.size_bytes,
        usd_a_month=round(garbage.usd_a_month, 6),
        unknown_objects=unknown.objects,
        deleted_objects=report.deletions.objects,
        deleted_bytes=report.deletions.size_bytes,
        failed=report.deletions.failed,
        failures=report.deletions.failures,
        examples=[key for one in report.findings if one.state is ObjectState.GARBAGE for key in one.examples],
        notes=report.notes,
        reached=None if report.is_complete else report.reached,
    )
    metrics.add_metric("GarbagePasses", MetricUnit.Count, 1 if report.is_complete else 0)
    if not report.is_complete:
        return
    metrics.add_metric("GarbageObjects", MetricUnit.Count, garbage.objects)
    metrics.add_metric("GarbageBytes", MetricUnit.Bytes, garbage.size_bytes)
    metrics.add_metric("GarbageDeleted", MetricUnit.Count, report.deletions.objects)
    metrics.add_metric("GarbageNotDeleted", MetricUnit.Count, report.deletions.failed)
    metrics.add_metric("UnknownObjects", MetricUnit.Count, unknown.objects)
