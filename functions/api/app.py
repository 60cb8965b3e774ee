"""The API function: jobs and streams over HTTP, `/v1/…`."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.api.app import app, openapi
from coldstream.api.serving import logger, metrics
from coldstream.runtime.package_log import log_with

__all__ = ["lambda_handler", "openapi"]

log_with(logger)


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="requestContext.requestId")
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    metrics.add_metric("Requests", MetricUnit.Count, 1)
    return app.resolve(event, context)
