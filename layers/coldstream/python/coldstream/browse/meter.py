"""Counts what reads of an archive cost, while they are made: each view says so, and searches are bounded by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from coldstream.browse.cost import ReadCost, get_cost, query_cost
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.ports import LogPage, ManifestReads, ObjectReads, RangeRead

MAX_ENTRIES_KEPT = 2000
"""Entries that are kept for their storage class: more than one page of a scan."""


class ReadMeter:
    """Passes the calls to a table and to objects on, and adds up what they cost. For one thread.

    Each call to the table counts as one request: those that take more are not for views of one stream. An object is
    read at the price of its storage class if its entry was read before.
    """

    def __init__(self, table: ManifestReads, objects: ObjectReads | None = None) -> None:
        self.cost = ReadCost()
        self._entries: dict[str, FragmentEntry] = {}
        self.table = cast("ManifestReads", _Metered(table, self._count_query))
        self.objects = cast("ObjectReads", _Metered(objects, self._count_get))

    def entry(self, key: str) -> FragmentEntry:
        """Return the entry that names an object, of those that were read last."""
        return self._entries[key]

    def _count_query(self, answer: object, *_: object) -> None:
        found = answer.entries if isinstance(answer, LogPage) else answer if isinstance(answer, tuple) else ()
        entries = [one for one in found if isinstance(one, FragmentEntry)]
        if len(self._entries) > MAX_ENTRIES_KEPT:
            self._entries.clear()
        self._entries |= {entry.key: entry for entry in entries}
        self.cost += query_cost(entries=len(entries), others=len(found) - len(entries))

    def _count_get(self, answer: object, key: str, *_: object) -> None:
        read_bytes = len(answer.data) if isinstance(answer, RangeRead) else 0
        entry = self._entries.get(key)
        self.cost += get_cost(1, read_bytes, None if entry is None else entry.storage_class)


class _Metered:
    def __init__(self, inner: object, count: Callable[..., None]) -> None:
        self._inner = inner
        self._count = count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            self._count(answer, *args)
            return answer

        return call
