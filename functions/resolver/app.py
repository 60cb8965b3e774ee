"""The resolver function: the HTTP API that turns an offset or a timestamp into byte ranges.

Its first answer does not wait for an SDK and for Powertools' API and validation to be loaded: docs/benchmarks.md has
the figures. What a client may ask is all in `coldstream.runtime.resolver_api`, which answers whatever is not plainly a
query for ranges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from coldstream.resolve.bodies import answer_body
from coldstream.resolve.problem import MEDIA_TYPE
from coldstream.runtime.query import plain_query
from coldstream.runtime.resolving import answer_ranges, logger, metrics, problem_to_tell


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="requestContext.requestId")
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    metrics.add_metric("Requests", MetricUnit.Count, 1)
    try:
        query = plain_query(event)
        body = None if query is None else json.dumps(answer_body(answer_ranges(event, query)), separators=(",", ":"))
    except Exception as err:  # noqa: BLE001  # every error is told, and logged where it is told
        problem, headers = problem_to_tell(err, context.aws_request_id)
        return _response(problem.status, MEDIA_TYPE, problem.to_json(), headers)
    if body is not None:
        return _response(HTTPStatus.OK, "application/json", body)
    from coldstream.runtime.resolver_api import app  # noqa: PLC0415  # Powertools' API takes long to load

    return app.resolve(event, context)


def _response(status: int, media_type: str, body: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "statusCode": int(status),
        "body": body,
        "isBase64Encoded": False,
        "headers": {"Content-Type": media_type, **(headers or {})},
        "cookies": [],
    }
