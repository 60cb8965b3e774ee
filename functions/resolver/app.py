"""The resolver function: the HTTP API that turns an offset or a timestamp into byte ranges.

Its first answer does not wait until an SDK, and Powertools' API and validation, are loaded: docs/benchmarks.md has the
figures. `coldstream.runtime.resolver_api` is the whole API, and answers every request that is not plainly a query for
ranges.
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
from coldstream.runtime.resolving import answer_ranges, logger, metrics, report_error


@metrics.log_metrics
@logger.inject_lambda_context(correlation_id_path="requestContext.requestId")
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    metrics.add_metric("Requests", MetricUnit.Count, 1)
    try:
        query = plain_query(event)
        body = None if query is None else json.dumps(answer_body(answer_ranges(event, query)), separators=(",", ":"))
    except Exception as err:  # noqa: BLE001  # every error is reported to the client, and logged there
        problem, headers = report_error(err, context.aws_request_id)
        return _response(problem.status, MEDIA_TYPE, problem.to_json(), headers)
    if body is not None:
        return _response(HTTPStatus.OK, "application/json", body)
    from coldstream.runtime.resolver_api import app  # noqa: PLC0415  # Powertools' API takes long to load

    return app.resolve(event, context)


def openapi() -> str:
    """Return the OpenAPI document of this function's API, for `make generate`."""
    from coldstream.runtime import resolver_api  # noqa: PLC0415  # as above

    return resolver_api.openapi()


def _response(status: int, media_type: str, body: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "statusCode": int(status),
        "body": body,
        "isBase64Encoded": False,
        "headers": {"Content-Type": media_type, **(headers or {})},
        "cookies": [],
    }
