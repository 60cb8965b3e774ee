"""The list of streams: searched, sorted and paged on the server."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from coldstream.browse.catalogue_query import CatalogueColumn, CatalogueQuery
from coldstream.console.number_fields import number_of
from coldstream.console.page_request import PageRequest
from coldstream.console.site import Site

PAGE_STREAMS = 50


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of the list: what it sorts by, its heading, and whether large values come first at the first click."""

    sort: CatalogueColumn
    heading: str
    largest_first: bool = True
    is_number: bool = True


COLUMNS = (
    ListColumn(CatalogueColumn.NAME, "Stream", largest_first=False, is_number=False),
    ListColumn(CatalogueColumn.MESSAGES, "Messages"),
    ListColumn(CatalogueColumn.DATA_BYTES, "Data"),
    ListColumn(CatalogueColumn.STORED_BYTES, "Stored"),
    ListColumn(CatalogueColumn.FIRST_TIME, "First", largest_first=False),
    ListColumn(CatalogueColumn.LAST_TIME, "Last"),
    ListColumn(CatalogueColumn.LAG, "Lag"),
    ListColumn(CatalogueColumn.GAPS, "Gaps"),
    ListColumn(CatalogueColumn.COST, "A month"),
)


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The head of a column as it is shown: its link sorts by it, or the other way round if it is sorted by already."""

    heading: str
    link: str
    aria_sort: str | None
    is_number: bool


def show(site: Site, asked: PageRequest) -> Response:
    """Show a page of the list."""
    query = _query(asked)
    page = site.streams.page(query, asked.visitor)
    has_lag = any(row.lag is not None for row in page.rows)
    columns = [column for column in COLUMNS if has_lag or column.sort is not CatalogueColumn.LAG]
    most = max((row.stored_bytes for row in page.rows), default=0)
    return site.page(
        asked,
        "streams.html",
        page=page,
        query=query,
        heads=[_head(column, query, asked) for column in columns],
        sort_names=[(column.sort.value, column.heading) for column in columns],
        most_stored=most,
        has_lag=has_lag,
    )


def _query(asked: PageRequest) -> CatalogueQuery:
    given = asked.query
    vhost = given.get("vhost")
    return CatalogueQuery(
        search=given.get("search"),
        vhost=vhost or None,
        sort=CatalogueColumn.parse(given.get("sort") or CatalogueColumn.NAME),
        descending=given.get("order") == "down",
        page=number_of("page", given.get("page"), 1),
        limit=PAGE_STREAMS,
        deleted=given.get("deleted") == "on",
        only_troubled=given.get("troubled") == "on",
    )


def _head(column: ListColumn, query: CatalogueQuery, asked: PageRequest) -> ColumnHead:
    is_sorted = query.sort is column.sort
    down = not query.descending if is_sorted else column.largest_first
    link = asked.query.link("/streams", sort=column.sort.value, order="down" if down else "up", page=None)
    direction = ("descending" if query.descending else "ascending") if is_sorted else None
    return ColumnHead(column.heading, link, direction, column.is_number)
