"""The list of all streams: searched, sorted, paged, kept and refreshed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.catalogue_cursor import CatalogueCursor
from coldstream.browse.catalogue_index import CatalogueIndex
from coldstream.browse.catalogue_query import CatalogueColumn, CataloguePage, CatalogueQuery
from coldstream.browse.catalogue_row import CatalogueRow, KnownLag, row_of
from coldstream.errors import InvalidQueryError, UnavailableError
from coldstream.manifest.appending import plan_create
from coldstream.manifest.entry import Head, StorageClass
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.store.samples import NOW, commit, entry
from tests.support.hostile_text import HOSTILE_TEXTS, hostile_streams
from tests.support.removing import delete

DAY_MS = 24 * 3600 * 1000


def stream(number: int, name: str | None = None, vhost: str = "/") -> StreamId:
    return StreamId(vhost, name or f"orders-{number}", Incarnation(f"__orders-{number}_1763700000000000000"))


def row(number: int, name: str | None = None, vhost: str = "/", **fields: Any) -> CatalogueRow:
    return replace(row_of(Head(stream(number, name, vhost)), NOW), **fields)


def random_row(rng: random.Random, number: int) -> CatalogueRow:
    name = rng.choice([*HOSTILE_TEXTS.values(), "Orders", "orders", "ORDERS", f"s{rng.randrange(20)}"])
    some = rng.random() < 0.8
    return row(
        number,
        name,
        rng.choice(["/", "a", "B"]),
        is_deleted=rng.random() < 0.1,
        messages=rng.randrange(4),
        data_bytes=rng.randrange(5),
        stored_bytes=rng.randrange(5),
        fragments=rng.randrange(3),
        first_offset=Offset(rng.randrange(4)) if some else None,
        tail=Offset(rng.randrange(9)) if some else None,
        first_time=TimestampMs(rng.randrange(-3, 3)) if some else None,
        last_time=TimestampMs(rng.randrange(9)) if some else None,
        age_ms=rng.randrange(5) if some else None,
        gaps=rng.randrange(2),
        losses=rng.randrange(2),
        quarantined=rng.randrange(2),
        holds=rng.randrange(2),
        cost_usd=rng.random() if some else 0.0,
        lag=rng.choice([None, KnownLag(3, None), KnownLag(3, rng.randrange(9))]),
    )


def value_of(one: CatalogueRow, column: CatalogueColumn) -> Any:
    match column:
        case CatalogueColumn.NAME | CatalogueColumn.VHOST:
            return getattr(one.stream, column).casefold()
        case CatalogueColumn.AGE:
            return one.age_ms
        case CatalogueColumn.LAG:
            return None if one.lag is None else one.lag.ms
        case CatalogueColumn.COST:
            return one.cost_usd
    return getattr(one, column)


def wanted_rows(rows: list[CatalogueRow], query: CatalogueQuery) -> list[CatalogueRow]:
    """Search and sort the simplest way."""
    found = [
        one
        for one in rows
        if query.search.casefold() in one.stream.name.casefold()
        and query.vhost in {None, one.stream.vhost}
        and (query.deleted or not one.is_deleted)
        and (not query.only_troubled or one.gaps + one.losses + one.quarantined)
    ]

    def place(one: CatalogueRow) -> tuple[Any, ...]:
        id_ = one.stream
        return id_.name.casefold(), id_.name, id_.vhost, id_.incarnation

    valued = sorted(
        (one for one in found if value_of(one, query.sort) is not None),
        key=lambda one: (value_of(one, query.sort), *place(one)),
        reverse=query.descending,
    )
    rest = sorted((one for one in found if value_of(one, query.sort) is None), key=place, reverse=query.descending)
    return valued + rest


def pages_forward(index: CatalogueIndex, query: CatalogueQuery) -> Iterator[CataloguePage]:
    page = index.page(query)
    yield page
    while page.next_cursor is not None:
        page = index.page(replace(query, cursor=page.next_cursor))
        yield page


@pytest.mark.parametrize("seed", range(60))
def test_pages_are_those_of_a_plain_sort_by_number_and_by_cursor_both_ways(seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng, number) for number in range(rng.randrange(0, 60))]
    rng.shuffle(rows)
    index = CatalogueIndex.of(rows, NOW)
    for _ in range(6):
        query = CatalogueQuery(
            search=rng.choice(["", "", "ord", "S1", "<", "É", "ß"]),
            vhost=rng.choice([None, None, "a"]),
            sort=rng.choice(list(CatalogueColumn)),
            descending=rng.random() < 0.5,
            limit=rng.randrange(1, 9),
            deleted=rng.random() < 0.5,
            only_troubled=rng.random() < 0.3,
        )
        wanted = wanted_rows(rows, query)
        found = list(pages_forward(index, query))
        assert [one for page in found for one in page.rows] == wanted
        assert found[0].totals.streams == len(wanted)
        assert found[0].totals.stored_bytes == sum(one.stored_bytes for one in wanted)
        assert found[0].pages == -(-len(wanted) // query.limit)
        for number in range(1, found[0].pages + 2):
            by_number = index.page(replace(query, page=number))
            assert list(by_number.rows) == wanted[(number - 1) * query.limit : number * query.limit]
        page, backwards = found[-1], list(found[-1].rows)
        while page.previous_cursor is not None:
            page = index.page(replace(query, cursor=page.previous_cursor))
            backwards = [*page.rows, *backwards]
        assert backwards == wanted


def test_a_cursor_goes_on_at_its_place_whatever_has_changed() -> None:
    rows = [row(number, f"s{number:02}", messages=number) for number in range(20)]
    query = CatalogueQuery(sort=CatalogueColumn.MESSAGES, limit=5)
    first = CatalogueIndex.of(rows, NOW).page(query)
    # The last row of the page is gone, others came before it, and one grew past it.
    changed = [one for one in rows if one.messages != 4] + [row(90, "new", messages=2), row(91, "grown", messages=7)]
    second = CatalogueIndex.of(changed, NOW).page(replace(query, cursor=first.next_cursor))
    assert [one.messages for one in second.rows] == [5, 6, 7, 7, 8]
    back = CatalogueIndex.of(changed, NOW).page(replace(query, cursor=second.previous_cursor))
    assert [one.messages for one in back.rows] == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("id_", HOSTILE_TEXTS)
def test_hostile_names_are_found_as_they_are(id_: str) -> None:
    text = HOSTILE_TEXTS[id_]
    rows = [replace(row(0), stream=one) for one in hostile_streams()]
    index = CatalogueIndex.of(rows, NOW)
    found = index.page(CatalogueQuery(search=text, limit=100))
    assert text in {one.stream.name for one in found.rows}
    pages = list(pages_forward(index, CatalogueQuery(limit=1)))
    assert {page.rows[0].stream.name for page in pages} == set(HOSTILE_TEXTS.values())


def test_a_cursor_of_another_order_or_from_nobody_is_refused() -> None:
    index = CatalogueIndex.of([row(number) for number in range(9)], NOW)
    cursor = index.page(CatalogueQuery(limit=2)).next_cursor
    assert cursor is not None
    for other in (
        CatalogueQuery(descending=True, cursor=cursor),
        CatalogueQuery(sort=CatalogueColumn.COST, cursor=cursor),
    ):
        with pytest.raises(InvalidQueryError, match="another order"):
            index.page(other)
    for text in ("", "x", "é", "e30", "bnVsbA", cursor + "A", cursor[:-1], "A" * 5000):
        with pytest.raises(InvalidQueryError, match="cursor"):
            index.page(CatalogueQuery(cursor=text))


@pytest.mark.parametrize("value", [None, True, [], {}])
def test_a_cursor_with_a_value_of_another_type_is_refused(value: Any) -> None:
    text = CatalogueCursor(CatalogueColumn.NAME, False, False, value, "a", "/", "i").to_text()
    with pytest.raises(InvalidQueryError, match="cursor"):
        CatalogueCursor.from_text(text)


@pytest.mark.parametrize(
    "fields", [{"page": 0}, {"limit": 0}, {"limit": 501}, {"search": "x" * 256}], ids=lambda fields: next(iter(fields))
)
def test_a_page_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidQueryError, match=next(iter(fields))):
        CatalogueQuery(**fields)


def test_an_unknown_column_is_refused() -> None:
    assert CatalogueColumn.parse("stored_bytes") is CatalogueColumn.STORED_BYTES
    with pytest.raises(InvalidQueryError, match="none of name, vhost"):
        CatalogueColumn.parse("<script>")


# The catalogue that reads the table


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def catalogue(table: MemoryTable, clock: Clock, **options: Any) -> StreamCatalogue:
    settings: dict[str, Any] = {"in_background": False, "now": lambda: NOW, "clock": clock} | options
    return StreamCatalogue(table, **settings)


def filled(count: int) -> MemoryTable:
    table = MemoryTable()
    for number in range(count):
        commit(table, entry(0, 10 + number), stream(number))
    return table


def test_a_row_has_what_the_head_says() -> None:
    table = filled(1)
    commit(table, entry(20, 30, time=5000), stream(0))
    head = table.head(stream(0).incarnation)
    assert head is not None
    (one,) = catalogue(table, Clock()).page(CatalogueQuery()).rows
    assert one == row_of(head, NOW)
    assert (one.messages, one.data_bytes, one.stored_bytes, one.fragments) == (18, 2000, 2164, 2)
    assert (one.first_offset, one.tail, one.first_time, one.last_time) == (0, 30, 1000, 5000)
    assert (one.age_ms, one.gaps, one.is_deleted, one.is_direct) == (NOW - 5000, 1, False, False)
    assert one.compression == pytest.approx(2000 / 2164)
    assert one.needs_attention


def test_deleted_and_direct_streams_are_told() -> None:
    table = filled(2)
    delete(table, stream(0).incarnation)
    table.apply(plan_create(StreamId("/", "direct", Incarnation("direct")), NOW, first=Offset(0), properties={}))
    found = catalogue(table, Clock()).page(CatalogueQuery(deleted=True)).rows
    assert [(one.stream.name, one.is_deleted, one.is_direct) for one in found] == [
        ("direct", False, True),
        ("orders-0", True, False),
        ("orders-1", False, False),
    ]
    direct = found[0]
    assert (direct.first_time, direct.age_ms, direct.compression) == (None, None, None)


def test_a_page_reads_nothing_until_what_it_shows_is_old() -> None:
    table, clock = filled(3), Clock()
    found = catalogue(table, clock, refresh_s=30.0)
    table.requests.clear()
    assert found.page(CatalogueQuery()).totals.streams == 3
    assert table.requests == {"Query": 2, "BatchGetItem": 1}  # policies, names, heads
    commit(table, entry(0, 5), stream(9))
    clock.now += 29
    table.requests.clear()
    assert found.page(CatalogueQuery()).totals.streams == 3
    assert table.requests == {}
    clock.now += 2
    assert found.page(CatalogueQuery()).totals.streams == 4


def test_a_defect_while_the_list_is_read_is_told_and_not_met_again_by_each_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, clock = filled(3), Clock()
    found = catalogue(table, clock, refresh_s=30.0)
    found.page(CatalogueQuery())
    clock.now += 31
    monkeypatch.setattr(table, "policies", lambda: 1 // 0)
    assert "ZeroDivisionError" in str(found.page(CatalogueQuery()).problem)
    monkeypatch.undo()
    assert found.page(CatalogueQuery()).totals.streams == 3


def test_ten_thousand_streams_are_a_hundred_and_twenty_requests_and_a_page_none() -> None:
    """What a page may take is a matter of requests and steps, not of how fast a machine is."""
    table, clock = MemoryTable(), Clock()
    heads = {one.incarnation: replace(Head(one), revision=1) for one in map(stream, range(10_000))}

    class Many(MemoryTable):
        def heads(self, incarnations: Any) -> Mapping[Incarnation, Head]:
            self._count("BatchGetItem")
            assert len(incarnations) <= 100
            return {incarnation: heads[incarnation] for incarnation in incarnations}

    many = Many()
    many._registry = {f"{number:064x}#{one}": heads[one].stream for number, one in enumerate(heads)}
    found = catalogue(many, clock)
    assert found.page(CatalogueQuery()).totals.streams == 10_000
    assert many.requests == {"Query": 21, "BatchGetItem": 100}
    many.requests.clear()
    for query in (CatalogueQuery(search="99"), CatalogueQuery(sort=CatalogueColumn.COST, page=150)):
        assert found.page(query).rows
    assert many.requests == {}
    assert table.requests == {}


def test_streams_past_the_most_are_left_out_and_that_is_told() -> None:
    page = catalogue(filled(5), Clock(), max_streams=3).page(CatalogueQuery())
    assert (page.is_cut, page.totals.streams) == (True, 3)


class Failing(MemoryTable):
    fails = False

    def heads(self, incarnations: Any) -> Mapping[Incarnation, Head]:
        if self.fails:
            raise UnavailableError("no answer")
        return super().heads(incarnations)


def test_a_table_that_does_not_answer_leaves_the_last_rows_and_is_told() -> None:
    table, clock = Failing(), Clock()
    commit(table, entry(0, 10), stream(0))
    found = catalogue(table, clock)
    assert found.page(CatalogueQuery()).problem is None
    table.fails = True
    clock.now += 60
    page = found.page(CatalogueQuery())
    assert (page.totals.streams, page.problem) == (1, "no answer")
    table.fails = False
    clock.now += 60
    assert found.page(CatalogueQuery()).problem is None


def test_a_table_that_never_answered_is_an_error() -> None:
    table = Failing()
    commit(table, entry(0, 10), stream(0))
    table.fails = True
    with pytest.raises(UnavailableError):
        catalogue(table, Clock()).page(CatalogueQuery())


def test_in_the_background_a_page_shows_the_old_rows_and_the_next_the_new() -> None:
    class Slow(MemoryTable):
        may_go = threading.Event()

        def heads(self, incarnations: Any) -> Mapping[Incarnation, Head]:
            assert self.may_go.wait(30)
            return super().heads(incarnations)

    table, clock = Slow(), Clock()
    table.may_go.set()
    commit(table, entry(0, 10), stream(0))
    found = catalogue(table, clock, in_background=True)
    found.page(CatalogueQuery())
    table.may_go.clear()
    commit(table, entry(0, 10), stream(1))
    clock.now += 60
    page = found.page(CatalogueQuery())
    assert page.totals.streams == 1
    table.may_go.set()
    found.close()
    again = found.page(CatalogueQuery())
    assert (again.totals.streams, again.is_refreshing) == (2, False)


def test_pages_that_come_at_once_before_the_first_rows_read_them_once() -> None:
    table = filled(3)
    found = catalogue(table, Clock())
    table.requests.clear()
    pages: list[CataloguePage] = []
    threads = [threading.Thread(target=lambda: pages.append(found.page(CatalogueQuery()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [page.totals.streams for page in pages] == [3] * 8
    assert table.requests["BatchGetItem"] == 1


def test_lags_come_from_whoever_knows_them_and_an_outage_there_leaves_them_unknown() -> None:
    lag = KnownLag(5, 700)
    found = catalogue(filled(2), Clock(), lags=lambda: {stream(1).incarnation: lag})
    assert [one.lag for one in found.page(CatalogueQuery()).rows] == [None, lag]

    def away() -> Mapping[Incarnation, KnownLag]:
        raise UnavailableError("no answer")

    assert {one.lag for one in catalogue(filled(2), Clock(), lags=away).page(CatalogueQuery()).rows} == {None}


def test_the_cost_follows_the_policy_that_moves_what_is_old() -> None:
    table = filled(1)
    (warm,) = catalogue(table, Clock()).page(CatalogueQuery()).rows
    table.put_policy(Policy("cold", "*/*", storage_class=StorageClass.GLACIER_IR, storage_class_age_ms=DAY_MS))
    page = catalogue(table, Clock()).page(CatalogueQuery())
    assert (warm.is_cost_estimate, page.rows[0].is_cost_estimate, page.totals.is_cost_estimate) == (False, True, True)
    assert 0 < page.rows[0].cost_usd < warm.cost_usd
