"""The resolver's HTTP API, by Powertools: its routes, the validation of requests, and its OpenAPI document.

The function loads this module for a request that `query` does not read. `make generate` writes the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.event_handler.openapi.params import Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse

from coldstream.errors import InvalidQueryError
from coldstream.resolve.answer import DEFAULT_MAX_BYTES, DEFAULT_MAX_RANGES, MAX_RANGES, Bounds, RangesQuery
from coldstream.resolve.api import AnswerBody, DescriptionBody, GatewayBody, ProblemBody, StreamsBody
from coldstream.resolve.problem import INVALID_QUERY, MEDIA_TYPE, METHOD_NOT_ALLOWED, ROUTE_NOT_FOUND, Problem
from coldstream.resolve.resolver import MAX_STREAMS
from coldstream.resolve.shard_api import ShardMapBody
from coldstream.resolve.super_answer import SuperOrder, SuperQuery
from coldstream.resolve.super_api import SuperAnswerBody
from coldstream.runtime import resolving
from coldstream.runtime.query import SIGNATURE, start_of, super_start_of

API_VERSION = "1.0"

app = APIGatewayHttpResolver(enable_validation=True)


def _answers(success: str, *problems: tuple[HTTPStatus, str]) -> dict[int, OpenAPIResponse]:
    """Describe a route's responses: the resolver's own, and those of API Gateway, which may reject a request first."""
    own = {
        HTTPStatus.BAD_REQUEST: "The query means nothing",
        HTTPStatus.INTERNAL_SERVER_ERROR: "The resolver failed, or the archive is damaged",
        HTTPStatus.SERVICE_UNAVAILABLE: "A service behind the resolver did not answer; try again after `Retry-After`",
    } | dict(problems)
    described: dict[int, OpenAPIResponse] = {
        HTTPStatus.OK.value: {"description": success},
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


_NO_STREAM = (HTTPStatus.NOT_FOUND, "The archive has no such stream")
_NO_SUPER = (HTTPStatus.NOT_FOUND, "The archive has no such sharded stream")
_NOT_PERMITTED = (HTTPStatus.FORBIDDEN, "Reading that stream is not permitted, whether or not it exists")

Vhost = Annotated[str, Query(description="Virtual host, of any characters, percent-encoded", examples=["/"])]
Name = Annotated[str, Query(description="Name of the stream, of any characters, percent-encoded", examples=["orders"])]
LogicalName = Annotated[
    str, Query(description="Logical name of a sharded stream, percent-encoded", examples=["orders"])
]
IncarnationName = Annotated[
    str | None, Query(description="This incarnation of the stream; by default the newest that was known 10 seconds ago")
]


@app.get(
    "/streams",
    operation_id="listStreams",
    summary="List the streams of the archive",
    responses=_answers("Some of the streams, and a cursor while there are more"),
)
def list_streams(
    cursor: Annotated[str | None, Query(description="`cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_STREAMS, description="How many at most")] = 100,
    *,
    deleted: Annotated[bool, Query(description="List the streams that are deleted as well")] = False,
) -> StreamsBody:
    """List every incarnation of every stream that the caller may read, a page at a time.

    Costs one Query, and a GetItem for each stream unless deleted ones are listed as well.
    """
    return StreamsBody.of(resolving.answer_streams(app.current_event.raw_event, cursor, limit, deleted=deleted))


@app.get(
    "/stream",
    operation_id="describeStream",
    summary="Describe a stream",
    responses=_answers("What is archived of the stream", _NO_STREAM, _NOT_PERMITTED),
)
def describe_stream(
    vhost: Vhost,
    name: Name,
    incarnation: IncarnationName = None,
    *,
    deleted: Annotated[bool, Query(description="Describe the incarnation that is named even if it is deleted")] = False,
) -> DescriptionBody:
    """Return a stream's offsets, times, sizes, gaps and tail. Costs one GetItem, and one Query if it has gaps."""
    event = app.current_event.raw_event
    return DescriptionBody.of(resolving.answer_description(event, vhost, name, incarnation, deleted=deleted))


@app.get(
    "/super",
    operation_id="describeSuper",
    summary="Describe a sharded stream",
    responses=_answers("The map of the sharded stream", _NO_SUPER, _NOT_PERMITTED),
)
def describe_super(vhost: Vhost, name: LogicalName) -> ShardMapBody:
    """Return the versions, partitions and lineage of a logical name. Costs one GetItem."""
    return ShardMapBody.of(resolving.answer_shard_map(app.current_event.raw_event, vhost, name))


@app.get(
    "/ranges",
    operation_id="resolveRanges",
    summary="Find the byte ranges that hold a stream from an offset or a time on",
    responses=_answers(
        "Ranges, each with a URL that grants it; or the gap or tail that is there instead",
        _NO_STREAM,
        _NOT_PERMITTED,
    ),
)
def resolve_ranges(
    *,
    vhost: Vhost,
    name: Annotated[
        str | None, Query(description="Name of the stream, percent-encoded; or else `super`", examples=["orders"])
    ] = None,
    super_name: Annotated[
        str | None,
        Query(alias="super", description="Logical name of a sharded stream, percent-encoded", examples=["orders"]),
    ] = None,
    incarnation: IncarnationName = None,
    position: Annotated[
        str | None,
        Query(description="Of a sharded stream: the position after another answer", examples=["v2,0:1042,1:977"]),
    ] = None,
    order: Annotated[
        SuperOrder | None,
        Query(description="Of a sharded stream: by default `key`; a cursor keeps the order that it was made with"),
    ] = None,
    spec: Annotated[
        Literal["first", "last", "next"] | None,
        Query(description="`first` chunk of any type, `last` user chunk, or `next`: the tail"),
    ] = None,
    offset: Annotated[
        str | None, Query(pattern="^[0-9]{1,20}$", description="The chunk that holds this offset", examples=["264193"])
    ] = None,
    timestamp: Annotated[
        str | None,
        Query(
            description="The first chunk at or after this time: milliseconds since 1970, or RFC 3339",
            examples=["1763700000000", "2025-11-21T04:40:00Z"],
        ),
    ] = None,
    cursor: Annotated[str | None, Query(description="Continue exactly where another answer ended")] = None,
    max_ranges: Annotated[int, Query(ge=1, le=MAX_RANGES, description="How many at most")] = DEFAULT_MAX_RANGES,
    max_bytes: Annotated[
        int, Query(ge=1, description="Sum over all ranges; one is always given, however large")
    ] = DEFAULT_MAX_BYTES,
    range_bytes: Annotated[
        int | None,
        Query(ge=1, description="Split fragments into ranges of about this size; by default they stay whole"),
    ] = None,
    precise: Annotated[
        bool,
        Query(description="Begin at the very chunk, at the cost of one S3 request, not up to about a MiB before it"),
    ] = False,
) -> AnswerBody | SuperAnswerBody:
    """Resolve exactly one of `spec`, `offset`, `timestamp` and `cursor`. Costs one DynamoDB Query, a timestamp two.

    For a sharded stream, `position` takes the place of `offset`; each request answers for at most 32 partitions, which
    share `max_ranges` and `max_bytes`, and costs as much for each of them.
    """
    if (name is None) == (super_name is None):
        raise InvalidQueryError("name", "give either name or super")
    bounds = Bounds(max_ranges, max_bytes, range_bytes)
    if super_name is not None:
        for field, given in (("offset", offset), ("incarnation", incarnation)):
            if given is not None:
                raise InvalidQueryError(field, "is one stream's, and super names many: give a position")
        start = super_start_of(spec=spec, position=position, timestamp=timestamp, cursor=cursor)
        query = SuperQuery(vhost, super_name, start, order or SuperOrder.KEY, bounds, precise)
        return SuperAnswerBody.of(resolving.answer_super_ranges(app.current_event.raw_event, query))
    for field, of_super in (("position", position), ("order", order)):
        if of_super is not None:
            raise InvalidQueryError(field, "is of a sharded stream: name that by super")
    assert name is not None
    answer = resolving.answer_ranges(
        app.current_event.raw_event,
        RangesQuery(
            vhost=vhost,
            name=name,
            start=start_of(spec=spec, offset=offset, timestamp=timestamp, cursor=cursor),
            incarnation=incarnation,
            bounds=Bounds(max_ranges, max_bytes, range_bytes),
            precise=precise,
        ),
    )
    return AnswerBody.of(answer)


def known_parameters(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
    """Reject a parameter that the route does not have. Ignored, a misspelt one would give a wrong answer."""
    known = {parameter.alias for parameter in app.context["_route"].dependant.query_params}
    # For an unknown path or method, Powertools has a route without parameters, and `no_route` answers.
    for name in app.current_event.query_string_parameters if known else ():
        if name not in known and not name.startswith(SIGNATURE):
            raise InvalidQueryError(
                name[:80], f"is not a parameter here; the parameters are {', '.join(sorted(known))}"
            )
    return next_middleware(app)


def invalid(err: RequestValidationError) -> Response[str]:
    """Report what Powertools found wrong with the parameters."""
    first = err.errors()[0]
    # Our own answer failed validation: that is no fault of the client.
    if first["loc"][0] == "response":
        return failed(err)
    field = str(first["loc"][-1])
    return _problem(INVALID_QUERY.body(f"{field}: {first['msg']}", instance=_instance(), field=field))


def no_route(_: NotFoundError) -> Response[str]:
    """Report an unknown path, or a method that a known path does not have."""
    event = app.current_event
    if event.path in {"/streams", "/stream", "/super", "/ranges"}:
        detail = f"{event.http_method} {event.path}: use GET"
        return _problem(METHOD_NOT_ALLOWED.body(detail, instance=_instance()), {"Allow": "GET"})
    return _problem(ROUTE_NOT_FOUND.body(f"no {event.path}", instance=_instance()))


def failed(err: Exception) -> Response[str]:
    """Report every other error."""
    problem, headers = resolving.report_error(err, app.lambda_context.aws_request_id)
    return _problem(problem, headers)


def _problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Response[str]:
    return Response(problem.status, MEDIA_TYPE, problem.to_json(), dict(headers or {}))


def _instance() -> str:
    return resolving.instance(app.lambda_context.aws_request_id)


app.use([known_parameters])
app.exception_handler(RequestValidationError)(invalid)
app.not_found(no_route)
app.exception_handler(Exception)(failed)


def openapi() -> str:
    """Return the OpenAPI document, docs/openapi.json."""
    document: dict[str, Any] = json.loads(
        app.get_openapi_json_schema(
            title="coldstream resolver",
            version=API_VERSION,
            description="Which byte ranges of which S3 objects hold a RabbitMQ stream, from an offset or a time on."
            " A parameter that is not described here is an error.",
        )
    )
    # Powertools describes errors of its own, which this API never returns.
    for path in document["paths"].values():
        path["get"]["responses"].pop("422")
    components = document["components"]
    for schema in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        components["schemas"].pop(schema)
    signature = {"type": "apiKey", "in": "header", "name": "Authorization"}
    components["securitySchemes"] = {
        "sigv4": signature | {"x-amazon-apigateway-authtype": "awsSigv4"},
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    }
    document["security"] = [{"sigv4": []}, {"token": []}]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
