"""The list of streams for those who may not see all: of the rows that their token permits, sums included."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.catalogue_index import CatalogueIndex
from coldstream.browse.catalogue_query import CataloguePage, CatalogueQuery
from coldstream.console.visitor import Visitor
from coldstream.web.access_tokens import TokenGrant

MAX_KEPT = 20
"""Tokens whose rows are kept until the list is read again."""

_Kept = tuple[CatalogueIndex, CatalogueIndex]


class PermittedStreams:
    """Makes pages of a catalogue for each visitor. Threads may share it."""

    def __init__(self, catalogue: StreamCatalogue) -> None:
        self._catalogue = catalogue
        self._kept: OrderedDict[tuple[TokenGrant, ...], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, query: CatalogueQuery, visitor: Visitor) -> CataloguePage:
        """Return a page of what a visitor may see. Raises InvalidQueryError, UnavailableError."""
        whole = self._catalogue.page(query)  # which reads the list again if it is old
        if visitor.sees_all:
            return whole
        found = self._index(visitor).page(query)
        return replace(found, is_refreshing=whole.is_refreshing, problem=whole.problem)

    def _index(self, visitor: Visitor) -> CatalogueIndex:
        whole, grants = self._catalogue.index(), visitor.holder.grants or ()
        with self._lock:
            kept = self._kept.get(grants)
            if kept is not None and kept[0] is whole:
                self._kept.move_to_end(grants)
                return kept[1]
        rows = (row for row in whole.rows if visitor.may_read(row.stream.name))
        made = CatalogueIndex.of(rows, whole.as_of, is_cut=whole.is_cut)
        with self._lock:
            self._kept[grants] = whole, made
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made
