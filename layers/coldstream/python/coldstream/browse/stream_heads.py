"""The heads of all streams, a hundred at a time, several requests in flight."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from coldstream.flow.window import map_ahead
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads
from coldstream.store.streams import iter_streams

BATCH_HEADS = 100
BATCHES_AT_ONCE = 4
"""Batches in flight: Python parses one at a time, so that more gain little."""


def iter_heads(table: ManifestReads, limit: int) -> Iterator[Head]:
    """Yield the heads of the first `limit` streams of the registry, deleted ones as well.

    Cost: one Query for every 500 streams, and one BatchGetItem for every 100.
    """
    with ThreadPoolExecutor(BATCHES_AT_ONCE, thread_name_prefix="heads") as pool:
        for found in map_ahead(pool, table.heads, _batches(table, limit), max_calls=BATCHES_AT_ONCE):
            yield from found.values()


def _batches(table: ManifestReads, limit: int) -> Iterator[list[Incarnation]]:
    streams = islice(iter_streams(table), limit)
    while batch := [stream.incarnation for stream in islice(streams, BATCH_HEADS)]:
        yield batch
