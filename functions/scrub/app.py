"""The scrub function: on a schedule, checks a part of the archive within a budget, from where the last run ended."""

from __future__ import annotations

import os
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit, single_metric
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.scrub.damage import Damage, Finding
from coldstream.scrub.report import ScrubReport, finding_to_json
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.scrub.settings import ScrubSettings
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.settings import METRICS_NAMESPACE, Settings
from coldstream.store.table import DynamoTable

logger = Logger(service="coldstream-scrub")
metrics = Metrics(namespace=METRICS_NAMESPACE, service="scrub")

STOP_BEFORE_MS = 30_000
"""Time left when a run stops: enough for the request under way, and to save the position."""


@metrics.log_metrics
@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, object]:
    """Run the scrub once. The event may say `"deep": true`; the budget is the function's."""
    settings, own = Settings.from_environment(), ScrubSettings.from_environment(os.environ)
    table, objects = DynamoTable(settings.table), S3Objects(settings.bucket)
    scrubber = Scrubber(table, objects, Keys(settings.prefix), objects.clock)
    report = scrubber.run(
        None,
        ScrubOptions(deep=event.get("deep") is True),
        own.budget,
        should_stop=lambda: context.get_remaining_time_in_millis() < STOP_BEFORE_MS,
        on_more=lambda finding, _: _log(finding),
    )
    _report(report)
    summary = report.to_json()
    del summary["findings"]  # they are in the log
    return summary


def _may_sweep() -> bool:
    """Whether something sweeps by itself; else what waits for a sweep waits for a person, and is no damage."""
    return os.environ.get("COLDSTREAM_SWEEP") == "delete"


def _log(finding: Finding) -> None:
    logger.error(str(finding), extra=finding_to_json(finding, is_mended=False))


def _report(report: ScrubReport) -> None:
    for finding in report.findings:
        _log(finding)
    metrics.add_metric("FragmentsScrubbed", MetricUnit.Count, report.position.fragments)
    ringing = sum(
        count for damage, count in report.counts.items() if _may_sweep() or damage is not Damage.TOMBSTONE_OVERDUE
    )
    metrics.add_metric("Damages", MetricUnit.Count, ringing)  # this metric rings the alarm
    metrics.add_metric("ScrubPassesCompleted", MetricUnit.Count, int(report.is_complete))
    for damage, count in report.counts.items():
        with single_metric("DamagesFound", MetricUnit.Count, count, namespace=METRICS_NAMESPACE) as metric:
            metric.add_dimension("service", "scrub")
            metric.add_dimension("Damage", damage)
