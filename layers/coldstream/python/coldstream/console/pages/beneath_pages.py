"""What lies beneath messages: fragments, the chunks of one, and the entries of a chunk."""

from __future__ import annotations

from starlette.responses import Response

from coldstream.browse.chunks import list_chunks
from coldstream.browse.entries import list_entries
from coldstream.browse.fragments import list_fragments
from coldstream.console.number_fields import number_of
from coldstream.console.page_request import PageRequest
from coldstream.console.site import Site
from coldstream.console.stream_address import path_of
from coldstream.units import MAX_OFFSET, Offset

PAGE_ENTRIES = 100


def show_fragments(site: Site, asked: PageRequest) -> Response:
    """Show fragments from an offset on, or those before one. Cost: a Query."""
    stream = site.stream_of(asked)
    before = asked.query.get("before")
    at = Offset(number_of("before" if before else "at", before or asked.query.get("at"), 0))
    listing = list_fragments(site.archive.table, stream, at, before=bool(before))
    path = f"{path_of(stream)}/fragments"
    return site.page(
        asked,
        "fragments.html",
        stream=stream,
        listing=listing,
        at=asked.query.get("at"),
        first_link=path,
        last_link=f"{path}?before={MAX_OFFSET}",
        next_link=None if listing.next is None else f"{path}?at={listing.next}",
        previous_link=None if listing.previous is None else f"{path}?before={listing.previous}",
    )


def show_chunks(site: Site, asked: PageRequest) -> Response:
    """Show the chunks around an offset. Cost: a Query and a GET."""
    stream = site.stream_of(asked)
    at = Offset(number_of("at", asked.query.get("at"), 0))
    listing = list_chunks(site.archive.table, site.archive.objects, stream, at)
    path = f"{path_of(stream)}/chunks"
    return site.page(
        asked,
        "chunks.html",
        stream=stream,
        listing=listing,
        at=asked.query.get("at"),
        next_link=None if listing.next is None else f"{path}?at={listing.next}",
        previous_link=None if listing.previous is None else f"{path}?at={listing.previous}",
    )


def show_entries(site: Site, asked: PageRequest) -> Response:
    """Show the entries of the chunk that holds an offset. Cost: a Query and a GET."""
    stream = site.stream_of(asked)
    at = Offset(number_of("at", asked.query.get("at"), 0))
    first = number_of("first", asked.query.get("first"), 0)
    listing = list_entries(site.archive.table, site.archive.objects, stream, at, first=first, limit=PAGE_ENTRIES)
    path = f"{path_of(stream)}/entries"
    following, total = first + PAGE_ENTRIES, listing.total
    return site.page(
        asked,
        "entries.html",
        stream=stream,
        listing=listing,
        at=asked.query.get("at"),
        next_link=f"{path}?at={at}&first={following}" if following < total else None,
        previous_link=f"{path}?at={at}&first={max(0, first - PAGE_ENTRIES)}" if first else None,
    )
