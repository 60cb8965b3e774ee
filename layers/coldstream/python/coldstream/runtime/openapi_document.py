"""OpenAPI documents of the functions' APIs: what their routes answer, without what is Powertools' own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from coldstream.resolve.api import GatewayBody, ProblemBody
from coldstream.resolve.problem import MEDIA_TYPE

Answers = dict[int, OpenAPIResponse]


def answers(
    success: str | Mapping[HTTPStatus, str], *problems: tuple[HTTPStatus, str], function: str = "The resolver"
) -> Answers:
    """Describe a route's responses: the function's own, and those of API Gateway, which may reject a request first."""
    own = {
        HTTPStatus.BAD_REQUEST: "The query means nothing",
        HTTPStatus.INTERNAL_SERVER_ERROR: f"{function} failed, or the archive is damaged",
        HTTPStatus.SERVICE_UNAVAILABLE: f"A service behind {function[0].lower()}{function[1:]} did not answer; try"
        " again after `Retry-After`",
    } | dict(problems)
    successes = {HTTPStatus.OK: success} if isinstance(success, str) else success
    described: Answers = {status.value: {"description": text} for status, text in successes.items()}
    described |= {
        HTTPStatus.UNAUTHORIZED.value: _gateways("The API wants a token, and this request has no valid one"),
        HTTPStatus.FORBIDDEN.value: _gateways("The signature is missing or wrong, or its owner may not call this API"),
        HTTPStatus.TOO_MANY_REQUESTS.value: _gateways("More requests than the API admits; try again later"),
    }
    for status, description in own.items():
        problem: OpenAPIResponse = {"description": description, "content": {MEDIA_TYPE: {"model": ProblemBody}}}
        other = described.get(status.value)
        if other is not None:
            problem["description"] += ". " + other["description"]
            problem["content"] |= other["content"]
        described[status.value] = problem
    return dict(sorted(described.items()))


def _gateways(description: str) -> OpenAPIResponse:
    """Describe a response of API Gateway itself."""
    return {"description": description, "content": {"application/json": {"model": GatewayBody}}}


def document_of(app: APIGatewayHttpResolver, *, title: str, version: str, description: str) -> dict[str, Any]:
    """Return the OpenAPI document of an API."""
    text = app.get_openapi_json_schema(title=title, version=version, description=description)
    document: dict[str, Any] = json.loads(text)
    # Powertools describes errors of its own, which these APIs never return.
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            # An answer without a body has no media type.
            operation["responses"].get("204", {}).pop("content", None)
    components = document["components"]
    for schema in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        components["schemas"].pop(schema, None)
    signature = {"type": "apiKey", "in": "header", "name": "Authorization"}
    components["securitySchemes"] = {
        "sigv4": signature | {"x-amazon-apigateway-authtype": "awsSigv4"},
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    }
    document["security"] = [{"sigv4": []}, {"token": []}]
    return document


def text_of(document: Mapping[str, Any]) -> str:
    """Return a document as it is committed."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
