"""The same views on DynamoDB and S3: what is sent over the wire."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.catalogue_query import CatalogueQuery
from coldstream.browse.chunks import list_chunks
from coldstream.browse.fragments import list_fragments
from coldstream.browse.message_listing import BeforeOffset, MessageQuery
from coldstream.browse.messages import list_messages
from coldstream.browse.names import StreamNames
from coldstream.browse.predicate import Predicate
from coldstream.browse.search import search_slice
from coldstream.browse.search_slice import SearchEnd, SearchQuery
from coldstream.browse.timeline import read_timeline
from coldstream.manifest.spec import FIRST, LAST, AtOffset, AtTimestamp
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs, now_ms
from tests.support.archive import STREAM, steady
from tests.support.browsed import MessageArchive
from tests.support.costs import counted


@pytest.fixture
def archive(dynamo_table: DynamoTable, s3_objects: S3Objects) -> MessageArchive:
    """Twenty fragments of three chunks, with a hole in the middle, in services."""
    archive = MessageArchive()
    table: Any = dynamo_table
    objects: Any = s3_objects
    archive.table, archive.objects = table, objects
    for number in range(20):
        if number != 10:
            archive.add(number * 30, steady(10, number * 30, number * 30 + 10, number * 30 + 20))
    return archive


PLACES: list[tuple[Any, int, dict[str, int]]] = [
    (AtOffset(Offset(123)), 123, {"Query": 1, "GetObject": 1}),
    (BeforeOffset(Offset(124)), 123, {"Query": 1, "GetObject": 1}),
    (FIRST, 0, {"Query": 1, "GetObject": 1}),
    (LAST, 599, {"Query": 1, "GetObject": 1}),
    (AtTimestamp(TimestampMs(205)), 210, {"Query": 2, "GetObject": 1}),
]


@pytest.mark.parametrize(("place", "offset", "requests"), PLACES, ids=lambda one: str(one)[:40])
def test_a_page_of_messages_is_a_query_and_a_ranged_get(
    archive: MessageArchive, place: Any, offset: int, requests: dict[str, int]
) -> None:
    list_messages(archive.table, archive.objects, STREAM, MessageQuery(FIRST, 1))  # makes the clients
    with counted() as counts:
        found = list_messages(archive.table, archive.objects, STREAM, MessageQuery(place, 5))
    assert {name: count for name, count in counts.items() if name[0].isupper()} == requests
    is_end = place == LAST or isinstance(place, BeforeOffset)
    assert found.messages[-1 if is_end else 0].offset == offset
    assert found.cost.requests == sum(requests.values())
    # What DynamoDB says that it took is what the cost says, or less: entries are smaller here.
    assert counts["read units"] <= found.cost.units


def test_the_lists_and_the_timeline(archive: MessageArchive) -> None:
    names = StreamNames(archive.table)
    stream = names.find(STREAM.vhost, STREAM.name)
    timeline = read_timeline(archive.table, stream)
    assert [span.kind for span in timeline.coverage] == ["archived", "gap", "archived"]
    assert len(list_fragments(archive.table, stream, Offset(0), 50).rows) == 19
    chunks = list_chunks(archive.table, archive.objects, stream, Offset(45)).rows
    assert all(one.next_offset == other.chunk_id for one, other in pairwise(chunks))
    page = StreamCatalogue(archive.table, now=now_ms).page(CatalogueQuery(search="ORD"))
    assert [(row.stream, row.messages, row.gaps) for row in page.rows] == [(STREAM, 570, 1)]


def test_a_search_goes_past_a_gap_to_the_end(archive: MessageArchive) -> None:
    query = SearchQuery(STREAM.vhost, STREAM.name, Predicate(), start=AtOffset(Offset(290)), max_matches=1000)
    one = search_slice(archive.table, archive.objects, query)
    assert (one.ended_by, len(one.matches)) == (SearchEnd.GAP, 10)
    two = search_slice(archive.table, archive.objects, query, one.cursor)
    assert (two.ended_by, two.matches[0].offset) == (SearchEnd.SLICE, 330)
