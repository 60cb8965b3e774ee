"""A snapshot of all streams, searched and sorted in memory: how a page of the list comes about.

The order of a column is made when it is first asked for, as an array of row numbers, and serves every page until the
next snapshot; so does the mask of the rows that a search finds. Rows lie in the order of their names: that of two rows
with the same value follows from their numbers.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from coldstream.browse.catalogue_cursor import CatalogueCursor
from coldstream.browse.catalogue_query import CatalogueColumn, CataloguePage, CatalogueQuery, CatalogueTotals
from coldstream.browse.catalogue_row import CatalogueRow
from coldstream.errors import InvalidQueryError
from coldstream.units import TimestampMs

MAX_MASKS = 16
"""Searches whose results a snapshot keeps, a byte a stream each."""

MAX_VHOSTS = 1000
"""Vhosts that a page names."""

_Value = str | float | None

_VALUES: Mapping[CatalogueColumn, Callable[[CatalogueRow], _Value]] = {
    CatalogueColumn.NAME: lambda row: row.stream.name.casefold(),
    CatalogueColumn.VHOST: lambda row: row.stream.vhost.casefold(),
    CatalogueColumn.MESSAGES: lambda row: row.messages,
    CatalogueColumn.DATA_BYTES: lambda row: row.data_bytes,
    CatalogueColumn.STORED_BYTES: lambda row: row.stored_bytes,
    CatalogueColumn.FRAGMENTS: lambda row: row.fragments,
    CatalogueColumn.FIRST_TIME: lambda row: row.first_time,
    CatalogueColumn.LAST_TIME: lambda row: row.last_time,
    CatalogueColumn.FIRST_OFFSET: lambda row: row.first_offset,
    CatalogueColumn.TAIL: lambda row: row.tail,
    CatalogueColumn.GAPS: lambda row: row.gaps,
    CatalogueColumn.LOSSES: lambda row: row.losses,
    CatalogueColumn.QUARANTINED: lambda row: row.quarantined,
    CatalogueColumn.HOLDS: lambda row: row.holds,
    CatalogueColumn.AGE: lambda row: row.age_ms,
    CatalogueColumn.LAG: lambda row: None if row.lag is None else row.lag.ms,
    CatalogueColumn.COST: lambda row: row.cost_usd,
}


@dataclass(frozen=True, slots=True)
class _ColumnOrder:
    """Row numbers by value, and those of rows without one; both then by number."""

    valued: array[int]
    without: array[int]

    def all(self, *, descending: bool) -> array[int]:
        """Return all rows in one direction, those without a value last."""
        return self.valued[::-1] + self.without[::-1] if descending else self.valued + self.without


@dataclass(frozen=True, slots=True)
class _Matches:
    """Which rows match, one byte for each, and their sums."""

    mask: bytes
    totals: CatalogueTotals


@dataclass(slots=True)
class CatalogueIndex:
    """All rows of one moment. Threads may share it."""

    rows: tuple[CatalogueRow, ...]
    as_of: TimestampMs
    is_cut: bool = False
    _names: tuple[str, ...] = field(init=False, repr=False)
    _vhosts: tuple[str, ...] = field(init=False, repr=False)
    _orders: dict[CatalogueColumn, _ColumnOrder] = field(default_factory=dict, init=False, repr=False)
    _found: OrderedDict[tuple[object, ...], _Matches] = field(default_factory=OrderedDict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def of(cls, rows: Iterable[CatalogueRow], as_of: TimestampMs, *, is_cut: bool = False) -> CatalogueIndex:
        """Index rows in any order."""
        return cls(tuple(sorted(rows, key=_place)), as_of, is_cut)

    def __post_init__(self) -> None:
        self._names = tuple(row.stream.name.casefold() for row in self.rows)
        self._vhosts = tuple(sorted({row.stream.vhost for row in self.rows})[:MAX_VHOSTS])

    def page(self, query: CatalogueQuery) -> CataloguePage:
        """Return a page. Raises InvalidQueryError for a cursor of another order."""
        matches = self._matches(query)
        order = self._order(query.sort).all(descending=query.descending)
        chosen = array("I", compress(order, map(matches.mask.__getitem__, order)))
        page: int | None = query.page
        start = (query.page - 1) * query.limit
        if query.cursor is not None:
            cursor = CatalogueCursor.from_text(query.cursor)
            if (cursor.sort, cursor.descending) != (query.sort, query.descending):
                raise InvalidQueryError("cursor", "belongs to another order of the list")
            # The rows before the cursor's place, of those that match.
            passed = sum(map(matches.mask.__getitem__, order[: self._passed(cursor)]))
            page, start = None, max(0, passed - query.limit) if cursor.is_before else passed
            end = passed if cursor.is_before else start + query.limit
        else:
            end = start + query.limit
        rows = tuple(self.rows[number] for number in chosen[start:end])
        has_next, has_previous = end < len(chosen), start > 0 and bool(rows)
        return CataloguePage(
            rows=rows,
            totals=matches.totals,
            page=page,
            pages=-(-len(chosen) // query.limit),
            next_cursor=_cursor(query, rows[-1], is_before=False) if rows and has_next else None,
            previous_cursor=_cursor(query, rows[0], is_before=True) if has_previous else None,
            vhosts=self._vhosts,
            as_of=self.as_of,
            is_cut=self.is_cut,
        )

    def _passed(self, cursor: CatalogueCursor) -> int:
        """Count the rows that come before a cursor's place in its order; with `is_before`, before its row."""
        order, value = self._order(cursor.sort), _VALUES[cursor.sort]
        rows = order.without if cursor.value is None else order.valued
        place = (cursor.name.casefold(), cursor.name, cursor.vhost, cursor.incarnation)
        key: tuple[_Value, ...] = place if cursor.value is None else (cursor.value, *place)

        def key_of(number: int) -> Any:
            row = self.rows[number]
            return _place(row) if cursor.value is None else (value(row), *_place(row))

        # Backwards, what comes before the row is what is greater.
        if cursor.descending:
            bisect = bisect_right if cursor.is_before else bisect_left
            passed = len(rows) - bisect(rows, key, key=key_of)
        else:
            bisect = bisect_left if cursor.is_before else bisect_right
            passed = bisect(rows, key, key=key_of)
        return passed + (len(order.valued) if cursor.value is None else 0)

    def _order(self, column: CatalogueColumn) -> _ColumnOrder:
        with self._lock:
            if column not in self._orders:
                self._orders[column] = self._sorted(column)
            return self._orders[column]

    def _sorted(self, column: CatalogueColumn) -> _ColumnOrder:
        if column is CatalogueColumn.NAME:
            return _ColumnOrder(array("I", range(len(self.rows))), array("I"))
        values = list(map(_VALUES[column], self.rows))
        valued = [number for number, value in enumerate(values) if value is not None]
        without = array("I", (number for number, value in enumerate(values) if value is None))
        valued.sort(key=values.__getitem__)  # type: ignore[arg-type]  # those that are None are not among them
        return _ColumnOrder(array("I", valued), without)

    def _matches(self, query: CatalogueQuery) -> _Matches:
        wanted = (query.search.casefold(), query.vhost, query.deleted, query.only_troubled)
        with self._lock:
            if wanted in self._found:
                self._found.move_to_end(wanted)
                return self._found[wanted]
        found = self._search(query, wanted[0])
        with self._lock:
            self._found[wanted] = found
            if len(self._found) > MAX_MASKS:
                self._found.popitem(last=False)
        return found

    def _search(self, query: CatalogueQuery, search: str) -> _Matches:
        mask = bytes(
            search in name
            and (query.vhost is None or row.stream.vhost == query.vhost)
            and (query.deleted or not row.is_deleted)
            and (not query.only_troubled or row.needs_attention)
            for name, row in zip(self._names, self.rows, strict=True)
        )
        return _Matches(mask, totals_of(compress(self.rows, mask)))


def totals_of(rows: Iterable[CatalogueRow]) -> CatalogueTotals:
    """Add up rows."""
    streams = messages = data_bytes = stored_bytes = gaps = losses = quarantined = 0
    cost_usd, is_estimate = 0.0, False
    for row in rows:
        streams += 1
        messages += row.messages
        data_bytes += row.data_bytes
        stored_bytes += row.stored_bytes
        gaps += row.gaps
        losses += row.losses
        quarantined += row.quarantined
        cost_usd += row.cost_usd
        is_estimate = is_estimate or row.is_cost_estimate
    return CatalogueTotals(
        streams, messages, data_bytes, stored_bytes, gaps, losses, quarantined, cost_usd, is_estimate
    )


def _place(row: CatalogueRow) -> tuple[str, str, str, str]:
    stream = row.stream
    return stream.name.casefold(), stream.name, stream.vhost, stream.incarnation


def _cursor(query: CatalogueQuery, row: CatalogueRow, *, is_before: bool) -> str:
    stream, value = row.stream, _VALUES[query.sort](row)
    return CatalogueCursor(
        query.sort, query.descending, is_before, value, stream.name, stream.vhost, stream.incarnation
    ).to_text()
