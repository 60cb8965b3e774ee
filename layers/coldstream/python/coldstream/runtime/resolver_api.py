"""The resolver's HTTP API, by Powertools: its routes, the validation of requests, and its OpenAPI document.

The function loads this module for a request that `query` does not read. `make generate` writes the document.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.openapi.params import Query

from coldstream.errors import InvalidQueryError
from coldstream.resolve.answer import DEFAULT_MAX_BYTES, DEFAULT_MAX_RANGES, MAX_RANGES, Bounds, RangesQuery
from coldstream.resolve.api import AnswerBody, DescriptionBody, StreamsBody
from coldstream.resolve.resolver import MAX_STREAMS
from coldstream.resolve.shard_api import ShardMapBody
from coldstream.resolve.super_answer import SuperOrder, SuperQuery
from coldstream.resolve.super_api import SuperAnswerBody
from coldstream.runtime import resolving
from coldstream.runtime.openapi_document import answers, document_of, text_of
from coldstream.runtime.query import start_of, super_start_of
from coldstream.runtime.strict_api import make_strict

API_VERSION = "1.0"

app = APIGatewayHttpResolver(enable_validation=True)


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
    responses=answers("Some of the streams, and a cursor while there are more"),
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
    responses=answers("What is archived of the stream", _NO_STREAM, _NOT_PERMITTED),
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
    responses=answers("The map of the sharded stream", _NO_SUPER, _NOT_PERMITTED),
)
def describe_super(vhost: Vhost, name: LogicalName) -> ShardMapBody:
    """Return the versions, partitions and lineage of a logical name. Costs one GetItem."""
    return ShardMapBody.of(resolving.answer_shard_map(app.current_event.raw_event, vhost, name))


@app.get(
    "/ranges",
    operation_id="resolveRanges",
    summary="Find the byte ranges that hold a stream from an offset or a time on",
    responses=answers(
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
        Query(description="Begin at the very chunk, at the cost of two S3 requests, not up to about a MiB before it"),
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


make_strict(app, dict.fromkeys(("/streams", "/stream", "/super", "/ranges"), "GET"), resolving.report_error)


def openapi() -> str:
    """Return the OpenAPI document, docs/openapi.json."""
    document = document_of(
        app,
        title="coldstream resolver",
        version=API_VERSION,
        description="Which byte ranges of which S3 objects hold a RabbitMQ stream, from an offset or a time on."
        " A parameter that is not described here is an error.",
    )
    return text_of(document)
