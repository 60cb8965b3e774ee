"""The upload function: takes `Segment Rolled` and `Segment Lost` events from SQS into the archive."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.archive.missing import record_loss
from coldstream.archive.plain_event import read_event
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader, UploadResult
from coldstream.errors import ColdstreamError
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import METRICS_NAMESPACE, Settings
from coldstream.store.table import DynamoTable

logger = Logger(service="coldstream-upload")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="upload")


@cache
def uploader() -> Uploader:
    """Make the uploader of this execution environment, at its first event: it keeps its connections."""
    settings = Settings.from_environment()
    objects = S3Objects(settings.bucket)
    return Uploader(
        table=DynamoTable(settings.table),
        objects=objects,
        keys=Keys(settings.prefix),
        fragment_bytes=settings.fragment_bytes,
        spool_dir=Path(settings.spool_dir) if settings.spool_dir else None,
        zstd_level=settings.zstd_level,
        now=objects.clock,
    )


def archive(record: dict[str, Any]) -> bool:
    """Archive the announced segment, or record the announced loss; tell whether that was done."""
    try:
        match read_event(record["body"]):
            case SegmentRolled() as segment:
                _report_upload(segment, uploader().upload(segment))
            case SegmentLost() as lost:
                is_recorded = record_loss(uploader().table, uploader().control, lost, uploader().now)
                _report_loss(lost, is_recorded=is_recorded)
    except Exception as err:  # whatever it is, it returns this record alone to the queue
        retryable = isinstance(err, ColdstreamError) and err.retryable
        logger.exception("event not handled", message_id=record["messageId"], retryable=retryable)
        metrics.add_metric("SegmentsFailed", MetricUnit.Count, 1)
        return False
    return True


def _outcome(result: UploadResult) -> str:
    if result.is_stale:
        return "this copy was dealt with before, and another one is staged now"
    if result.removed:
        return "not archived: these offsets were removed from the archive"
    return "in quarantine" if result.quarantined else "archived"


def _report_upload(segment: SegmentRolled, result: UploadResult) -> None:
    report = logger.warning if result.quarantined else logger.info
    report(
        f"{segment}: {_outcome(result)}",
        vhost=segment.stream.vhost,
        stream=segment.stream.name,
        incarnation=segment.stream.incarnation,
        first_offset=segment.first_offset,
        next_offset=segment.next_offset,
        fragments_committed=result.fragments_committed,
        fragments_present=result.fragments_present,
        quarantined=result.quarantined,
        reason=result.reason,
    )
    metrics.add_metric("FragmentsCommitted", MetricUnit.Count, result.fragments_committed)
    metrics.add_metric("BytesCommitted", MetricUnit.Bytes, result.bytes_committed)
    metrics.add_metric("SegmentsQuarantined", MetricUnit.Count, 1 if result.quarantined else 0)
    metrics.add_metric("SegmentsRemoved", MetricUnit.Count, 1 if result.removed else 0)


def _report_loss(lost: SegmentLost, *, is_recorded: bool) -> None:
    report = logger.warning if is_recorded else logger.info
    report(
        "loss recorded" if is_recorded else "no loss: these offsets were removed from the archive",
        vhost=lost.stream.vhost,
        stream=lost.stream.name,
        incarnation=lost.stream.incarnation,
        first_offset=lost.first_offset,
        next_offset=lost.next_offset,
        reason=lost.reason,
    )
    # This metric rings the alarm.
    metrics.add_metric("SegmentsLost", MetricUnit.Count, 1 if is_recorded and not lost.unseen else 0)


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001  # Lambda's form
    """Handle a batch of SQS records; report those that must be delivered again."""
    # Not by Powertools' batch processor: it loads asyncio and the events of all services, a tenth of a cold start.
    failed = [record["messageId"] for record in event["Records"] if not archive(record)]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
