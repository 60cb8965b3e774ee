"""The list of all streams, kept in memory and read again when it is asked for and old.

    catalogue = StreamCatalogue(table, now=objects.clock)
    page = catalogue.page(CatalogueQuery(search="orders", sort=CatalogueColumn.STORED_BYTES, descending=True))

A page costs no request, unless the heads that it shows are older than `refresh_s`. Then all are read again: one Query
for every 500 streams, and a BatchGetItem for every 100, several at a time. In a process that lives on that happens in
the background, and the page shows what was read before; a function, which stands still between two requests, waits.
What a refresh costs is a read unit a stream, $1.25 for ten million: nothing is read while nobody looks.

Streams past `max_streams` are left out, and the page says so. A row takes about a kilobyte.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from coldstream.browse.catalogue_index import CatalogueIndex
from coldstream.browse.catalogue_query import CataloguePage, CatalogueQuery
from coldstream.browse.catalogue_row import KnownLag, row_of
from coldstream.browse.stream_heads import iter_heads
from coldstream.errors import ColdstreamError
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads
from coldstream.units import TimestampMs

_LOG = logging.getLogger(__name__)

REFRESH_S = 30.0
MAX_STREAMS = 200_000

Lags = Callable[[], Mapping[Incarnation, KnownLag]]
"""Asks agents how far the archive is behind, by incarnation (`browse.agents`)."""


class StreamCatalogue:
    """Lists the streams of one table. Threads may share it. `now` is AWS's clock.

    `lags` is asked at each refresh; what it raises as a ColdstreamError leaves the lags unknown.
    """

    def __init__(
        self,
        table: ManifestReads,
        *,
        now: Callable[[], TimestampMs],
        refresh_s: float = REFRESH_S,
        in_background: bool = True,
        max_streams: int = MAX_STREAMS,
        lags: Lags | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._now = now
        self._refresh_s = refresh_s
        self._in_background = in_background
        self._max_streams = max_streams
        self._lags = lags
        self._clock = clock
        self._index: CatalogueIndex | None = None
        self._read_at = self._done_at = 0.0
        self._problem: str | None = None
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None

    def page(self, query: CatalogueQuery) -> CataloguePage:
        """Return a page. Raises InvalidQueryError; UnavailableError if the streams were never read."""
        index = self._index
        if index is None:
            index = self.refresh()
        elif self._clock() - self._read_at >= self._refresh_s:
            index = self._refresh_if_free(index)
        page = index.page(query)
        return replace(page, is_refreshing=self._reading.locked(), problem=self._problem)

    def index(self) -> CatalogueIndex:
        """Return all rows as they were read last. Raises UnavailableError if they never were."""
        return self._index or self.refresh()

    def refresh(self) -> CatalogueIndex:
        """Read all streams now, or wait for whoever is reading them. Raises UnavailableError."""
        asked_at = self._clock()
        with self._reading:
            if self._index is not None and self._done_at >= asked_at:
                return self._index  # somebody read them meanwhile
            began_at = self._clock()
            index = self._read()
            # From before the reads: what has changed since then may not show.
            self._index, self._read_at, self._problem = index, began_at, None
            self._done_at = self._clock()
            return index

    def close(self) -> None:
        """Wait for a refresh that is under way."""
        if self._thread is not None:
            self._thread.join()

    def _refresh_if_free(self, index: CatalogueIndex) -> CatalogueIndex:
        if self._reading.locked():
            return index
        if not self._in_background:
            return self._refresh_or_tell() or index
        self._thread = threading.Thread(target=self._refresh_or_tell, name="catalogue", daemon=True)
        self._thread.start()
        return index

    def _refresh_or_tell(self) -> CatalogueIndex | None:
        try:
            return self.refresh()
        except ColdstreamError as err:
            # The page shows what was read before, with this; the next one after a while tries again.
            self._problem, self._read_at = str(err), self._clock()
            return None
        except Exception as err:  # noqa: BLE001  it is logged whole
            # A defect. Untold, it would end this thread, and each page would begin another that ends so.
            self._problem, self._read_at = f"{type(err).__name__}: {err}", self._clock()
            _LOG.exception("the list of streams could not be read")
            return None

    def _read(self) -> CatalogueIndex:
        as_of = self._now()
        policies = self._table.policies()
        lags = self._known_lags()
        rows = [
            row_of(head, as_of, policies, lags.get(head.stream.incarnation))
            for head in iter_heads(self._table, self._max_streams + 1)
        ]
        return CatalogueIndex.of(rows[: self._max_streams], as_of, is_cut=len(rows) > self._max_streams)

    def _known_lags(self) -> Mapping[Incarnation, KnownLag]:
        if self._lags is None:
            return {}
        try:
            return self._lags()
        except ColdstreamError:
            return {}
