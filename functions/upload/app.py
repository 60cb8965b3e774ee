"""The upload function: `Segment Rolled` events, by way of SQS, into the archive."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.archive.upload import Uploader
from coldstream.errors import ColdstreamError
from coldstream.runtime.events import segment_of
from coldstream.runtime.settings import Settings
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable

logger = Logger(service="coldstream-upload")
metrics = Metrics(namespace="coldstream", service="upload")


@cache
def uploader() -> Uploader:
    """Make the uploader of this execution environment, at its first event."""
    settings = Settings.from_environment()
    return Uploader(
        table=DynamoTable(settings.table),
        objects=S3Objects(settings.bucket),
        keys=Keys(settings.prefix),
        fragment_bytes=settings.fragment_bytes,
        spool_dir=Path(settings.spool_dir) if settings.spool_dir else None,
    )


def archive(record: SQSRecord) -> None:
    """Archive the segment that a record announces. What this raises gives that record alone back to the queue."""
    try:
        segment = segment_of(record.body)
        done = uploader().upload(segment)
    except Exception as err:
        # Here, for Powertools turns it into an entry of the answer without a word.
        retryable = isinstance(err, ColdstreamError) and err.retryable
        logger.exception("segment not archived", message_id=record.message_id, retryable=retryable)
        metrics.add_metric("SegmentsFailed", MetricUnit.Count, 1)
        raise
    report = logger.warning if done.quarantined else logger.info
    report(
        f"{segment}: {'in quarantine' if done.quarantined else 'archived'}",
        vhost=segment.stream.vhost,
        stream=segment.stream.name,
        incarnation=segment.stream.incarnation,
        first_offset=segment.first_offset,
        next_offset=segment.next_offset,
        fragments_committed=done.fragments_committed,
        fragments_present=done.fragments_present,
        quarantined=done.quarantined,
        reason=done.reason,
    )
    metrics.add_metric("FragmentsCommitted", MetricUnit.Count, done.fragments_committed)
    metrics.add_metric("BytesCommitted", MetricUnit.Bytes, done.bytes_committed)
    metrics.add_metric("SegmentsQuarantined", MetricUnit.Count, 1 if done.quarantined else 0)


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """Take a batch of SQS records; report those that have to come again."""
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event=event, record_handler=archive, processor=processor, context=context)
