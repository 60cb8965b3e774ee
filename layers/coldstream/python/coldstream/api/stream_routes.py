"""The routes of streams: `/v1/streams`, and `/v1/stream…` for one, named by vhost and name in the query.

They show what a caller may read by the resolver's rules: the scopes of a token, or the grants to a principal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools.event_handler.openapi.params import Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from coldstream.api import serving
from coldstream.api.message_bodies import MessagesBody, SearchBody, SearchForecastBody
from coldstream.api.serving import ServedArchive
from coldstream.api.stream_bodies import StreamListBody, StreamRowBody, TimelineBody
from coldstream.browse.catalogue_index import CatalogueIndex
from coldstream.browse.catalogue_query import (
    MAX_PAGE_STREAMS,
    MAX_SEARCH_CHARACTERS,
    CatalogueColumn,
    CataloguePage,
    CatalogueQuery,
)
from coldstream.browse.catalogue_row import row_of
from coldstream.browse.limits import ViewLimits
from coldstream.browse.message_listing import BeforeOffset, MessageQuery
from coldstream.browse.messages import list_messages
from coldstream.browse.predicate_text import parse_predicate
from coldstream.browse.search import search_slice
from coldstream.browse.search_forecast import search_forecast
from coldstream.browse.search_slice import SearchQuery, SliceBounds
from coldstream.browse.timeline import read_timeline
from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec, parse_offset_spec
from coldstream.manifest.stream import MAX_NAME_BYTES, StreamId
from coldstream.resolve.caller import Caller
from coldstream.resolve.permissions import MayRead
from coldstream.runtime.audit import AuditLine, audited
from coldstream.runtime.openapi_document import Answers, answers
from coldstream.units import KIB, MIB

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]  # it has no annotations

GIB = 1024 * MIB
MAX_MESSAGES = 100
MAX_BODY_BYTES = 64 * KIB
SLICE = SliceBounds(max_bytes=64 * MIB, max_seconds=8.0, max_matches=50)
"""What one answer of a search does: it has to come within the function's time."""

_BEFORE = "before:"

_NAME = {"min_length": 1, "max_length": MAX_NAME_BYTES, "json_schema_extra": {"format": "coldstream-name"}}

Vhost = Annotated[str, Query(description="Virtual host, of any characters, percent-encoded", examples=["/"], **_NAME)]
Name = Annotated[
    str, Query(description="Name of the stream, of any characters, percent-encoded", examples=["orders"], **_NAME)
]
IncarnationName = Annotated[
    str | None, Query(description="This incarnation; by default the newest", pattern="^[A-Za-z0-9_=-]{1,255}$")
]
Deleted = Annotated[bool, Query(description="Also if it is deleted")]
Where = Annotated[
    str,
    Query(
        description='What to look for: conditions joined by `and`, such as `app.region = "eu" and body ~ "error"`',
        min_length=1,
        max_length=2000,
        json_schema_extra={"format": "coldstream-predicate"},
    ),
]
Start = Annotated[
    str,
    Query(
        description="Where to begin: first, an offset, or a time",
        json_schema_extra={"format": "coldstream-place"},
    ),
]
End = Annotated[
    str | None,
    Query(
        description="Where to end, itself not included: an offset or a time",
        json_schema_extra={"format": "coldstream-until"},
    ),
]
MaxBytes = Annotated[int, Query(ge=1, le=64 * GIB, description="Bytes of chunks that the search looks through at most")]
MaxMatches = Annotated[int, Query(ge=1, le=10_000, description="Matches that end the search")]


def _answers(success: str, *problems: tuple[HTTPStatus, str]) -> Answers:
    forbidden = (HTTPStatus.FORBIDDEN, "Reading that stream is not permitted, whether or not it exists")
    return answers(success, forbidden, *problems, function="The function")


_NO_STREAM = (HTTPStatus.NOT_FOUND, "The archive has no such stream")
_COLD = (HTTPStatus.CONFLICT, "The messages are in a cold storage class: `coldstream restore` makes them readable")


@contextmanager
def _permitted(operation: str, vhost: str, name: str, **fields: Any) -> Iterator[AuditLine]:
    """Write the audit line of what the block reads, which begins by checking that the caller may read the stream."""
    event = router.current_event.raw_event
    with audited(event, operation, vhost=vhost, stream=name, **fields) as line:
        serving.served().check_readable(Caller.of(event), vhost, name)
        yield line


@router.get(
    "/v1/streams",
    operation_id="listStreams",
    summary="List streams: searched, sorted, by pages",
    tags=["streams"],
    responses=_answers("Streams that the caller may read"),
)
def list_streams(
    *,
    search: Annotated[
        str, Query(description="Only names that contain this, in any case", max_length=MAX_SEARCH_CHARACTERS)
    ] = "",
    vhost: Annotated[str | None, Query(description="Only streams of this virtual host")] = None,
    sort: Annotated[CatalogueColumn, Query(description="The column to sort by")] = CatalogueColumn.NAME,
    descending: Annotated[bool, Query(description="Largest first")] = False,
    page: Annotated[int, Query(ge=1, le=10**9, description="Which page, from 1 on")] = 1,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_STREAMS, description="Streams of a page")] = 50,
    cursor: Annotated[str | None, Query(description="A cursor of another page, in place of `page`")] = None,
    deleted: Annotated[bool, Query(description="Deleted streams as well")] = False,
    troubled: Annotated[bool, Query(description="Only streams with gaps, losses or quarantine")] = False,
) -> StreamListBody:
    """List the streams that the caller may read.

    Costs nothing if the heads were read in the last half minute; else a Query for every 500 streams, and a BatchGetItem
    for every 100.
    """
    event = router.current_event.raw_event
    query = CatalogueQuery(search, vhost, sort, descending, page, limit, cursor, deleted, troubled)
    with audited(event, "list-streams") as line:
        archive = serving.served()
        found = _page(archive, query, archive.readable(Caller.of(event)))
        line.fields["streams"] = len(found.rows)
        return StreamListBody.of(found)


@router.get(
    "/v1/stream",
    operation_id="showStream",
    summary="Show what is archived of a stream",
    tags=["streams"],
    responses=_answers("What its head tells", _NO_STREAM),
)
def show_stream(
    *, vhost: Vhost, name: Name, incarnation: IncarnationName = None, deleted: Deleted = False
) -> StreamRowBody:
    """Return one stream. Costs a GetItem and a Query for the policies, and a few more to find the stream."""
    with _permitted("show-stream", vhost, name, incarnation=incarnation) as line:
        archive = serving.served()
        stream = _found(line, vhost, name, incarnation, deleted=deleted)
        head = archive.table.head(stream.incarnation)
        if head is None:
            raise StreamNotFoundError(f"no {stream}")
        return StreamRowBody.of(row_of(head, archive.now(), archive.table.policies()))


@router.get(
    "/v1/stream/timeline",
    operation_id="showTimeline",
    summary="Show what there is of which offsets: archive, gaps, losses, quarantine, holds",
    tags=["streams"],
    responses=_answers("Lanes of spans over the stream's offsets", _NO_STREAM),
)
def show_timeline(
    *,
    vhost: Vhost,
    name: Name,
    incarnation: IncarnationName = None,
    deleted: Deleted = False,
    max_spans: Annotated[
        int, Query(ge=10, le=2000, description="Spans of a lane; of more, narrow neighbours are joined")
    ] = 400,
) -> TimelineBody:
    """Return a stream's timeline. Costs two Queries, and a few requests to find the stream."""
    with _permitted("show-timeline", vhost, name, incarnation=incarnation) as line:
        stream = _found(line, vhost, name, incarnation, deleted=deleted)
        return TimelineBody.of(read_timeline(serving.served().table, stream, max_spans=max_spans))


@router.get(
    "/v1/stream/messages",
    operation_id="showMessages",
    summary="Show messages from a place on, or right before an offset",
    tags=["streams"],
    responses=_answers("Consecutive messages, or the gap that is there", _NO_STREAM, _COLD),
)
def show_messages(
    *,
    vhost: Vhost,
    name: Name,
    incarnation: IncarnationName = None,
    at: Annotated[
        str,
        Query(
            description="first, last, next, an offset, or a time; or `before:` and an offset, for the page before it",
            examples=["264193", "last", "before:264193", "2026-01-31T09:30:00Z"],
            json_schema_extra={"format": "coldstream-page"},
        ),
    ] = "first",
    limit: Annotated[int, Query(ge=1, le=MAX_MESSAGES, description="How many at most; a page may be shorter")] = 20,
    body_bytes: Annotated[int, Query(ge=1, le=MAX_BODY_BYTES, description="Bytes of each body at most")] = KIB,
) -> MessagesBody:
    """Return a page of messages, anywhere in the stream. Costs one Query and one GET; a time a Query more."""
    place = _place(at)
    with _permitted("show-messages", vhost, name, incarnation=incarnation, at=at) as line:
        archive = serving.served()
        stream = _found(line, vhost, name, incarnation)
        limits = ViewLimits(body_bytes, 200, 50)
        listing = list_messages(archive.table, archive.objects, stream, MessageQuery(place, limit, limits))
        line.fields["messages"] = len(listing.messages)
        return MessagesBody.of(listing)


@router.get(
    "/v1/stream/search",
    operation_id="searchMessages",
    summary="Search messages, a bounded slice at a time",
    tags=["streams"],
    responses=_answers("What a slice found, and a cursor for the next one", _NO_STREAM, _COLD),
)
def search_messages(
    *,
    vhost: Vhost,
    name: Name,
    where: Where,
    incarnation: IncarnationName = None,
    start: Start = "first",
    end: End = None,
    cursor: Annotated[str | None, Query(description="`cursor` of the slice before")] = None,
    max_bytes: MaxBytes = GIB,
    max_matches: MaxMatches = 100,
) -> SearchBody:
    """Search on from a cursor, or begin. A slice looks through 64 MiB, for 8 seconds, or finds 50 messages."""
    query = _search(
        vhost=vhost,
        name=name,
        where=where,
        incarnation=incarnation,
        start=start,
        end=end,
        max_bytes=max_bytes,
        max_matches=max_matches,
    )
    with _permitted("search-messages", vhost, name, incarnation=incarnation) as line:
        archive = serving.served()
        found = search_slice(archive.table, archive.objects, query, cursor, SLICE, names=archive.names)
        line.fields |= {"incarnation": found.incarnation, "matches": len(found.matches)}
        return SearchBody.of(found)


@router.get(
    "/v1/stream/search/forecast",
    operation_id="forecastSearch",
    summary="Tell what a search will read and cost",
    tags=["streams"],
    responses=_answers("An estimate", _NO_STREAM),
)
def forecast_search(
    *,
    vhost: Vhost,
    name: Name,
    where: Where,
    incarnation: IncarnationName = None,
    start: Start = "first",
    end: End = None,
    max_bytes: MaxBytes = GIB,
    max_matches: MaxMatches = 100,
) -> SearchForecastBody:
    """Estimate what a search will read, from the stream's head and a few entries."""
    query = _search(
        vhost=vhost,
        name=name,
        where=where,
        incarnation=incarnation,
        start=start,
        end=end,
        max_bytes=max_bytes,
        max_matches=max_matches,
    )
    with _permitted("forecast-search", vhost, name, incarnation=incarnation):
        archive = serving.served()
        return SearchForecastBody.of(search_forecast(archive.table, query, names=archive.names))


def _page(archive: ServedArchive, query: CatalogueQuery, may_read: MayRead | None) -> CataloguePage:
    """Return a page of what a caller may read: searched, sorted and counted without all else."""
    if may_read is None:
        return archive.catalogue.page(query)
    # Asked first, because it reads the heads again if they are old.
    all_streams = archive.catalogue.page(CatalogueQuery(limit=1))
    index = archive.catalogue.index()
    rows = [row for row in index.rows if may_read(row.stream.vhost, row.stream.name)]
    page = CatalogueIndex.of(rows, index.as_of, is_cut=all_streams.is_cut).page(query)
    return replace(page, problem=all_streams.problem)


def _found(line: AuditLine, vhost: str, name: str, incarnation: str | None, *, deleted: bool = False) -> StreamId:
    stream = serving.served().names.find(vhost, name, incarnation, deleted=deleted)
    line.fields["incarnation"] = stream.incarnation
    return stream


def _place(at: str) -> OffsetSpec | BeforeOffset:
    if at.startswith(_BEFORE):
        spec = _spec("at", at.removeprefix(_BEFORE), (AtOffset,))
        assert isinstance(spec, AtOffset)
        return BeforeOffset(spec.offset)
    return _spec("at", at, (AtOffset, AtTimestamp, AtEnd))


def _spec(field: str, text: str, kinds: tuple[type[OffsetSpec], ...]) -> OffsetSpec:
    """Read a place, under the name of its parameter. Raises InvalidQueryError."""
    try:
        spec = parse_offset_spec(text)
    except InvalidQueryError as err:
        raise InvalidQueryError(field, err.problem) from err
    if not isinstance(spec, kinds):
        raise InvalidQueryError(field, f"{text[:80]!r} is neither an offset nor a time")
    return spec


def _search(
    *,
    vhost: str,
    name: str,
    where: str,
    incarnation: str | None,
    start: str,
    end: str | None,
    max_bytes: int,
    max_matches: int,
) -> SearchQuery:
    until = None if end is None else _spec("end", end, (AtOffset, AtTimestamp))
    assert not isinstance(until, AtEnd)
    return SearchQuery(
        vhost,
        name,
        parse_predicate(where),
        _spec("start", start, (AtOffset, AtTimestamp, AtEnd)),
        until,
        incarnation,
        max_bytes,
        max_matches,
    )
