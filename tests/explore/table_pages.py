"""Queries page by page, each page as the table is at its moment: what the port says is read so.

Methods that promise one Query may have it end at a megabyte, before their limit. Those that promise all go on from
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from coldstream.manifest.entry import Erasure, Hold, JournalEvent, Missing, Row
from coldstream.manifest.stream import Incarnation
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.store.sortkeys import ERASURES, HOLDS, LAST_EVENT, LAST_MISSING, MISSING, event_key, row_key
from coldstream.units import Offset
from tests.explore.requests import Part, Request

PAGED = frozenset({
    "missing", "journal", "recorded_changes", "holds", "erasures", "rows",
    "log_from_offset", "log_end", "log_before", "tombstones",
})  # fmt: skip

_LAST = "\U0010ffff"


def _page(double: MemoryTable, incarnation: Incarnation, first: str, last: str, size: int) -> tuple[Any, ...]:
    return tuple(double._query(incarnation, first, last, size, every_kind=True))


def _recorded_page(double: MemoryTable, incarnation: Incarnation, after_revision: int, size: int) -> tuple[Any, ...]:
    return tuple(islice(double.recorded_changes(incarnation, after_revision), size))


PAGES: dict[str, Callable[..., tuple[Any, ...]]] = {"page": _page, "recorded_page": _recorded_page}
"""What answers a request of one page, by its method: no methods of the port, which hides them."""


class TablePages:
    """The methods in PAGED, around requests of so many items."""

    def __init__(self, ask: Callable[[Request], Any], size: int) -> None:
        self._ask, self._size = ask, size

    def missing(self, incarnation: Incarnation) -> Iterator[Missing]:
        yield from self._all(incarnation, MISSING, LAST_MISSING)

    def journal(
        self,
        incarnation: Incarnation,
        after_revision: int = 0,
        *,
        page_items: int | None = None,
    ) -> Iterator[JournalEvent]:
        yield from self._all(incarnation, event_key(after_revision + 1), LAST_EVENT)

    def recorded_changes(
        self,
        incarnation: Incarnation,
        after_revision: int = 0,
        *,
        page_items: int | None = None,
    ) -> Iterator[Any]:
        if self._request("head", incarnation) is None:
            return
        while True:
            page = self._request("recorded_page", incarnation, after_revision, self._size)
            yield from page
            if len(page) < self._size:
                return
            after_revision = page[-1][0].revision

    def holds(self, incarnation: Incarnation) -> tuple[Hold, ...]:
        return tuple(self._all(incarnation, HOLDS, f"{HOLDS}{_LAST}"))

    def erasures(self, incarnation: Incarnation) -> tuple[Erasure, ...]:
        return tuple(self._all(incarnation, ERASURES, f"{ERASURES}{_LAST}"))

    def rows(
        self,
        incarnation: Incarnation,
        kind: str = "",
        *,
        after: str = "",
        page_items: int | None = None,
    ) -> Iterator[Row]:
        yield from self._all(incarnation, max(kind, f"{after}\0" if after else ""), f"{kind}{_LAST}")

    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        return self._request("log_from_offset", incarnation, offset, min(limit, self._size))  # type: ignore[no-any-return]

    def log_end(self, incarnation: Incarnation, limit: int) -> LogPage:
        return self._request("log_end", incarnation, min(limit, self._size))  # type: ignore[no-any-return]

    def log_before(self, incarnation: Incarnation, offset: Offset, limit: int) -> Any:
        return self._request("log_before", incarnation, offset, min(limit, self._size))

    def tombstones(self, incarnation: Incarnation, due_by: int, limit: int) -> Any:
        return self._request("tombstones", incarnation, due_by, min(limit, self._size))

    def _all(self, incarnation: Incarnation, first: str, last: str) -> Iterator[Any]:
        while True:
            page = self._request("page", incarnation, first, last, self._size)
            yield from page
            if len(page) < self._size:
                return
            first = f"{row_key(page[-1])}\0"

    def _request(self, method: str, *args: Any) -> Any:
        return self._ask(Request(Part.LOG, method, args))
