"""Search a stream for messages: first what it will read, then slice by slice, up to a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.responses import Response

from coldstream.browse.predicate_text import parse_predicate
from coldstream.browse.search import search_slice
from coldstream.browse.search_forecast import search_forecast
from coldstream.browse.search_slice import SearchEnd, SearchQuery, SliceBounds
from coldstream.console.number_fields import number_of
from coldstream.console.page_request import PageRequest
from coldstream.console.pages.message_pages import BodyForm, listed_body
from coldstream.console.site import Site
from coldstream.console.stream_address import path_of
from coldstream.errors import InvalidInputError, InvalidQueryError, PredicateError
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, parse_offset_spec
from coldstream.manifest.stream import StreamId
from coldstream.units import parse_size

DEFAULT_BYTES = "1GiB"
DEFAULT_MATCHES = "100"


@dataclass(frozen=True, slots=True)
class SearchFields:
    """What was typed, and what is wrong with it: `problem` belongs to `field`, and to the character at `position`."""

    predicate: str
    start: str
    end: str
    max_bytes: str
    max_matches: str
    field: str = ""
    problem: str = ""
    position: int | None = None


def show(site: Site, asked: PageRequest) -> Response:
    """Show the form; with a predicate what the search will read; with `run`, a slice of it."""
    stream = site.stream_of(asked)
    fields = _fields(asked)
    if not asked.query.get("q").strip():
        return _page(site, asked, stream, fields)
    try:
        query = _query(stream, fields, asked)
        if asked.query.get("run"):
            return _run(site, asked, stream, fields, query)
        forecast = search_forecast(site.archive.table, query, names=site.archive.names)
    except InvalidInputError as err:
        return _page(site, asked, stream, _with_problem(fields, err))
    return _page(site, asked, stream, fields, forecast=forecast, run_link=_link(stream, query, fields))


def _run(site: Site, asked: PageRequest, stream: StreamId, fields: SearchFields, query: SearchQuery) -> Response:
    bounds = SliceBounds(max_bytes=site.options.slice_bytes, max_seconds=site.options.slice_s)
    cursor = asked.query.get("cursor") or None
    found = search_slice(site.archive.table, site.archive.objects, query, cursor, bounds, names=site.archive.names)
    return _page(
        site,
        asked,
        stream,
        fields,
        found=found,
        is_first=cursor is None,
        bodies={one.offset: listed_body(one.body, BodyForm.AUTO) for one in found.matches},
        next_link=None if found.cursor is None else _link(stream, query, fields, found.cursor),
        ends=SearchEnd,
    )


def _page(site: Site, asked: PageRequest, stream: StreamId, fields: SearchFields, **content: object) -> Response:
    given = {"forecast": None, "found": None, "run_link": None, **content}
    return site.page(asked, "search.html", HTTPStatus.OK, stream=stream, fields=fields, **given)


def _fields(asked: PageRequest) -> SearchFields:
    given = asked.query
    return SearchFields(
        given.get("q"),
        given.get("from"),
        given.get("to"),
        given.get("max_bytes") or DEFAULT_BYTES,
        given.get("max_matches") or DEFAULT_MATCHES,
    )


def _query(stream: StreamId, fields: SearchFields, asked: PageRequest) -> SearchQuery:
    end = parse_offset_spec(fields.end, asked.now) if fields.end.strip() else None
    if isinstance(end, AtEnd):
        raise InvalidQueryError("to", f"{fields.end!r} is neither an offset nor a time")
    try:
        max_bytes = parse_size(fields.max_bytes)
    except ValueError as err:
        raise InvalidQueryError("max_bytes", str(err)) from err
    return SearchQuery(
        stream.vhost,
        stream.name,
        parse_predicate(fields.predicate),
        start=_start(fields.start, asked),
        end=end,
        incarnation=stream.incarnation,
        max_bytes=max_bytes,
        max_matches=number_of("max_matches", fields.max_matches, int(DEFAULT_MATCHES)),
    )


def _start(text: str, asked: PageRequest) -> AtOffset | AtTimestamp | AtEnd:
    try:
        return parse_offset_spec(text.strip() or "first", asked.now)
    except InvalidQueryError as err:
        raise InvalidQueryError("from", err.problem) from err


def _link(stream: StreamId, query: SearchQuery, fields: SearchFields, cursor: str | None = None) -> str:
    """Return the link to a slice. Times are in it as they were understood: a while ago would be another one later."""
    pairs = {
        "q": fields.predicate,
        "from": str(query.start),
        "to": "" if query.end is None else str(query.end),
        "max_bytes": str(query.max_bytes),
        "max_matches": str(query.max_matches),
        "run": "1",
        "cursor": cursor or "",
    }
    return f"{path_of(stream)}/search?{urlencode({name: value for name, value in pairs.items() if value})}"


def _with_problem(fields: SearchFields, err: InvalidInputError) -> SearchFields:
    position = err.position if isinstance(err, PredicateError) else None
    name = "q" if isinstance(err, PredicateError) else err.field
    known = {"q", "from", "to", "max_bytes", "max_matches"}
    field = name if name in known else "to" if name == "offset spec" else "q"
    return replace(fields, field=field, problem=err.problem, position=position)
