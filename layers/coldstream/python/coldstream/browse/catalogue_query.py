"""Which page of the list of streams is asked for, and the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from coldstream.browse.catalogue_row import CatalogueRow
from coldstream.errors import InvalidQueryError
from coldstream.units import TimestampMs

MAX_PAGE_STREAMS = 500
MAX_SEARCH_CHARACTERS = 255


class CatalogueColumn(StrEnum):
    """A column that the list is sorted by."""

    NAME = "name"
    VHOST = "vhost"
    MESSAGES = "messages"
    DATA_BYTES = "data_bytes"
    STORED_BYTES = "stored_bytes"
    FRAGMENTS = "fragments"
    FIRST_TIME = "first_time"
    LAST_TIME = "last_time"
    FIRST_OFFSET = "first_offset"
    TAIL = "tail"
    GAPS = "gaps"
    LOSSES = "losses"
    QUARANTINED = "quarantined"
    HOLDS = "holds"
    AGE = "age"
    LAG = "lag"
    COST = "cost"

    @classmethod
    def parse(cls, text: str) -> CatalogueColumn:
        """Return the column of that name. Raises InvalidQueryError."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidQueryError("sort", f"{text[:40]!r} is none of {', '.join(cls)}") from None


@dataclass(frozen=True, slots=True)
class CatalogueQuery:
    """A page of the list: streams whose name contains `search`, in any case, sorted by a column.

    `page` counts from 1. `cursor`, from an earlier page, takes its place, and continues after that page's last stream
    (or before its first one) whatever has changed meanwhile. `vhost` None means all. Rows without a value in the column
    come last, both ways. `only_troubled` leaves the streams with gaps, losses or quarantine.
    """

    search: str = ""
    vhost: str | None = None
    sort: CatalogueColumn = CatalogueColumn.NAME
    descending: bool = False
    page: int = 1
    limit: int = 50
    cursor: str | None = None
    deleted: bool = False
    only_troubled: bool = False

    def __post_init__(self) -> None:
        if self.page < 1:
            raise InvalidQueryError("page", f"{self.page} is not 1 or more")
        if not 1 <= self.limit <= MAX_PAGE_STREAMS:
            raise InvalidQueryError("limit", f"{self.limit} is not from 1 to {MAX_PAGE_STREAMS}")
        if len(self.search) > MAX_SEARCH_CHARACTERS:
            raise InvalidQueryError("search", f"has {len(self.search)} characters, of {MAX_SEARCH_CHARACTERS} at most")


@dataclass(frozen=True, slots=True)
class CatalogueTotals:
    """Sums over streams."""

    streams: int = 0
    messages: int = 0
    data_bytes: int = 0
    stored_bytes: int = 0
    gaps: int = 0
    losses: int = 0
    quarantined: int = 0
    cost_usd: float = 0.0
    is_cost_estimate: bool = False


@dataclass(frozen=True, slots=True)
class CataloguePage:
    """Rows of the list, the sums over all that match, and how old what they say is.

    `page` is None if the page was asked for by a cursor; `pages` counts all that match. `as_of` is when the heads were
    read. `problem` says why they could not be read again since, and `is_cut` that the archive has more streams than the
    catalogue holds.
    """

    rows: tuple[CatalogueRow, ...]
    totals: CatalogueTotals
    page: int | None
    pages: int
    next_cursor: str | None
    previous_cursor: str | None
    vhosts: tuple[str, ...]
    as_of: TimestampMs
    is_refreshing: bool = False
    is_cut: bool = False
    problem: str | None = field(default=None)
