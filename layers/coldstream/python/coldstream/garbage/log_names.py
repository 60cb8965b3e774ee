"""Which keys the log of a stream names: the manifest's side of the merge join of a listing with a log.

Keys are listed in the order of their first offsets, and of one offset in the order of the text of their generations.
Entries come in the order of their next offsets. Entries do not overlap, so both orders go forward together, and a page
of entries at a time is all that is in memory. There is one exception: while a compaction is unfinished, its merged
entry comes after the entries within it. The head says which entry that is, so it is read first.
"""

from __future__ import annotations

from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.store.log import PAGE_ENTRIES
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset

FIRST_ENTRIES = 8
"""Entries of the first Query after a jump: to a key further on than the last page was long. Each page that follows
without a jump has eight times as many."""


class LogNames:
    """Tells, key by key, whether the log names it. Ask in ascending order of first offsets.

    It skips the parts of the log that nobody asks for. Cost: a Query a page, or one for each key if they lie far apart;
    one more if a compaction is unfinished.
    """

    def __init__(self, table: ManifestReads, head: Head) -> None:
        self._table = table
        self._incarnation = head.stream.incarnation
        self._merged = _merged_key(table, head)
        self._keys: dict[Offset, list[str]] = {}
        """The keys that the page in hand names, by first offset."""
        self._began = self._reached = Offset(0)
        """The offsets that the page in hand is about."""
        self._is_at_end = False
        self._limit = FIRST_ENTRIES

    def names(self, key: str, first_offset: Offset) -> bool:
        """Tell whether an entry has this key, whose fragment begins at `first_offset`."""
        # The entry of the key, if there is one, ends after its first offset: it is past what was read, or in the page.
        if first_offset >= self._reached and not self._is_at_end:
            self._read(first_offset)
        return key == self._merged or key in self._keys.get(first_offset, ())

    def _read(self, first_offset: Offset) -> None:
        is_near = first_offset - self._reached <= self._reached - self._began
        self._limit = min(self._limit * 8, PAGE_ENTRIES) if is_near else FIRST_ENTRIES
        page = self._table.log_from_offset(self._incarnation, first_offset, self._limit)
        self._keys = {}
        for entry in page.entries:
            self._keys.setdefault(entry.first_offset, []).append(entry.key)
        self._is_at_end = page.head is not None or not page.entries
        self._began = first_offset
        self._reached = page.entries[-1].next_offset if page.entries else first_offset


def _merged_key(table: ManifestReads, head: Head) -> str | None:
    """Return the key of the merged entry of an unfinished compaction."""
    if head.compacting is None:
        return None
    entries: tuple[FragmentEntry, ...] = table.log_from_offset(
        head.stream.incarnation, Offset(head.compacting - 1), 1
    ).entries
    return next((entry.key for entry in entries if entry.next_offset == head.compacting), None)
