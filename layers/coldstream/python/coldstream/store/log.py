"""The log of a stream, read page by page."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import LogPage, ManifestReads
from coldstream.units import Offset

PAGE_ENTRIES = 1000
"""Entries of one Query; DynamoDB ends a page at a megabyte, which is about as many."""


def iter_pages(
    table: ManifestReads, incarnation: Incarnation, offset: Offset, page_entries: int = PAGE_ENTRIES
) -> Iterator[LogPage]:
    """Yield the pages of the log from the entry that ends after `offset`, up to the one that shows the head.

    Cost: a Query a page, sent when the caller takes the page. Consecutive pages are read at different moments: see
    `store.ports` for what they may show of changes that are under way.
    """
    while True:
        page = table.log_from_offset(incarnation, offset, page_entries)
        yield page
        # The head sorts after the last entry, so the page that shows it is the last one.
        if page.head is not None or not page.entries:
            return
        offset = page.entries[-1].next_offset


def iter_log(
    table: ManifestReads, incarnation: Incarnation, offset: Offset, page_entries: int = PAGE_ENTRIES
) -> Iterator[FragmentEntry]:
    """Yield the entries that end after `offset`, in order. Cost: a Query a page, sent when the page is needed."""
    for page in iter_pages(table, incarnation, offset, page_entries):
        yield from page.entries
