"""`BuriedKeys`: the keys that tombstones name, of the stream that a pass is in.

A stream may have a million tombstones, after retention or the move of all of it to another class, and none is found by
its key. So they are read once for a stream, and not for each window. What later changes bury is in the journal: each
window reads the last changes up to its fence, and while these reach back to those of the window before, nothing is
left out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from coldstream.errors import NotRecordedError
from coldstream.manifest.entry import Head, Tombstone
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races
from coldstream.store.recent_changes import RECENT_CHANGES, recent_keys, recorded_keys
from coldstream.store.sortkeys import TOMBSTONES

BUCKETS = 256
"""Sorting makes objects of the hashes, 40 bytes each: so only of a part of them at a time."""


class BuriedKeys:
    """Tells which keys tombstones and the last changes name. Ask with heads of rising revisions, stream after stream.

    Keys are kept by their hashes. Two keys with the same one, of which there are 2^64, would keep an object until the
    next pass, in whose process hashes are others.
    """

    def __init__(self, table: ManifestTable) -> None:
        self._table = table
        self._incarnation: Incarnation | None = None
        self._revision = 0
        """Everything that changes up to it buried is known."""
        self._hashes: list[array[int]] = []
        """Of the tombstones, in buckets, each in order."""
        self._since: set[str] = set()
        """The keys of the changes that were read after the tombstones, or may not have shown among them."""

    def among(self, head: Head, keys: Iterable[str]) -> frozenset[str]:
        """Return those of the keys that are named; `head` is that of the fence, which all of this is read after.

        Cost: a GetItem and a Query; for a stream's first window, and if more than RECENT_CHANGES went by since the
        last, also a Query a page of tombstones. Memory: 8 bytes for each tombstone.
        """
        incarnation = head.stream.incarnation
        hashes, since = self._hashes, self._since
        is_behind = self._incarnation != incarnation or head.revision - self._revision > RECENT_CHANGES
        if is_behind:
            hashes, since = self._tombstones(incarnation), set()
        # Repeated by itself: another fence would only be one more change that has to show first.
        try:
            recent = retry_lost_races(lambda: recorded_keys(self._table, head))
        except NotRecordedError:
            # What the changes of an earlier release buried is not known from them: only from the tombstones.
            if not is_behind:
                hashes, since = self._tombstones(incarnation), set()
            recent = retry_lost_races(lambda: recent_keys(self._table, head))
        # Only now, all at once: the next window relies on both having been read.
        self._incarnation, self._revision = incarnation, head.revision
        self._hashes, self._since = hashes, since | recent
        return frozenset(key for key in keys if key in self._since or self._has(key))

    def _tombstones(self, incarnation: Incarnation) -> list[array[int]]:
        hashes = [array("q") for _ in range(BUCKETS)]
        for row in self._table.rows(incarnation, TOMBSTONES):
            if isinstance(row, Tombstone):
                found = hash(row.key)
                hashes[found % BUCKETS].append(found)
        for number, bucket in enumerate(hashes):
            hashes[number] = array("q", sorted(bucket))
        return hashes

    def _has(self, key: str) -> bool:
        found = hash(key)
        bucket = self._hashes[found % BUCKETS]
        place = bisect_left(bucket, found)
        return place < len(bucket) and bucket[place] == found
