"""Counts what reads of an archive cost, while they are made: each view says so, and searches are bounded by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from coldstream.browse.cost import ReadCost, get_cost, query_cost
from coldstream.manifest.entry import StorageClass
from coldstream.store.ports import LogPage, ManifestReads, ObjectReads, RangeRead


class ReadMeter:
    """Passes the calls to a table and to objects on, and adds up what they cost. For one thread.

    Each call to the table counts as one request: those that take more are not for views of one stream. Objects are read
    at the price of `storage_class`, which the caller sets.
    """

    def __init__(self, table: ManifestReads, objects: ObjectReads | None = None) -> None:
        self.storage_class: StorageClass | None = None
        self.cost = ReadCost()
        self.table = cast("ManifestReads", _Metered(table, self._count_query))
        self.objects = cast("ObjectReads", _Metered(objects, self._count_get))

    def _count_query(self, answer: object) -> None:
        entries = 0
        if isinstance(answer, LogPage):
            entries = len(answer.entries)
        elif isinstance(answer, tuple):
            entries = len(answer)
        self.cost += query_cost(entries=entries)

    def _count_get(self, answer: object) -> None:
        read_bytes = len(answer.data) if isinstance(answer, RangeRead) else 0
        self.cost += get_cost(1, read_bytes, self.storage_class)


class _Metered:
    def __init__(self, inner: object, count: Callable[[object], None]) -> None:
        self._inner = inner
        self._count = count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            self._count(answer)
            return answer

        return call
