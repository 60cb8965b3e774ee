"""An HTTP API by Powertools that refuses what it does not describe, and reports every error as a problem.

    app = APIGatewayHttpResolver(enable_validation=True)
    make_strict(app, paths, report_error)

Left alone, Powertools ignores a parameter that a route does not have, answers errors in a form of its own, and does not
tell a wrong method from a wrong path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError

from coldstream.errors import InvalidQueryError
from coldstream.resolve.problem import (
    INVALID_QUERY,
    MEDIA_TYPE,
    METHOD_NOT_ALLOWED,
    ROUTE_NOT_FOUND,
    Problem,
    instance_of,
)
from coldstream.runtime.query import SIGNATURE

ReportError = Callable[[Exception, str], tuple[Problem, dict[str, str]]]
"""Takes an error and the request's id; returns the problem for the client, and headers."""

_PARAMETER = re.compile(r"\\{\w+\\}")


def make_strict(app: APIGatewayHttpResolver, paths: Mapping[str, str], report_error: ReportError) -> None:
    """Let an API refuse what it does not describe.

    `paths` are its paths as OpenAPI writes them, each with its methods as the header `Allow` lists them.
    """
    patterns = [(re.compile(_PARAMETER.sub("[^/]+", re.escape(path))), methods) for path, methods in paths.items()]

    def known_parameters(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
        """Reject a parameter that the route does not have. Ignored, a misspelt one would give a wrong answer."""
        route = app.context["_route"]
        # For an unknown path or method, Powertools has a route of its own, and `no_route` answers.
        if route.rule.pattern != "^.*$":
            known = {parameter.alias for parameter in route.dependant.query_params}
            for name in app.current_event.query_string_parameters:
                if name not in known and not name.startswith(SIGNATURE):
                    there = f"the parameters are {', '.join(sorted(known))}" if known else "there are none"
                    raise InvalidQueryError(name[:80], f"is not a parameter here; {there}")
        return next_middleware(app)

    def invalid(err: RequestValidationError) -> Response[str]:
        """Report what Powertools found wrong with the parameters."""
        first = err.errors()[0]
        # Our own answer failed validation: that is no fault of the client.
        if first["loc"][0] == "response":
            return failed(err)
        # A parameter's name follows the word that says where it is; numbers after it are places in a list.
        field = str(first["loc"][1] if len(first["loc"]) > 1 else first["loc"][0])
        problem = INVALID_QUERY.body(f"{field}: {first['msg']}", instance=_instance(app), field=field)
        return _response(problem)

    def no_route(_: NotFoundError) -> Response[str]:
        """Report an unknown path, or a method that a known path does not have."""
        event = app.current_event
        methods = next((methods for pattern, methods in patterns if pattern.fullmatch(event.path)), None)
        # A path whose last part Powertools cannot read, such as one with a newline, is of no job and no stream.
        if methods is None or event.http_method in methods.split(", "):
            return _response(ROUTE_NOT_FOUND.body(f"no {event.path}"[:500], instance=_instance(app)))
        detail = f"{event.http_method} {event.path}: use {' or '.join(methods.split(', '))}"
        return _response(METHOD_NOT_ALLOWED.body(detail[:500], instance=_instance(app)), {"Allow": methods})

    def failed(err: Exception) -> Response[str]:
        """Report every other error."""
        problem, headers = report_error(err, app.lambda_context.aws_request_id)
        return _response(problem, headers)

    app.use([known_parameters])
    app.exception_handler(RequestValidationError)(invalid)
    app.not_found(no_route)
    app.exception_handler(Exception)(failed)


def _instance(app: APIGatewayHttpResolver) -> str:
    return instance_of(app.lambda_context.aws_request_id)


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response[str]:
    return Response(HTTPStatus(problem.status), MEDIA_TYPE, problem.to_json(), dict(headers or {}))
