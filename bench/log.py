"""Logs of any number of fragments, and any number of streams, without objects and events, in DynamoDB Local."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3

from bench.harness import CannotMeasureError, say
from bench.load import FIRST_TIMESTAMP
from coldstream.manifest.entry import FragmentEntry, Head, LastUserChunk
from coldstream.manifest.sparse import SparseIndex, SparsePoint
from coldstream.manifest.stream import StreamId
from coldstream.store.items import Item, entry_item, head_item, registry_item
from coldstream.store.keys import Keys
from coldstream.units import MIB, ChunkId, Epoch, Offset, TimestampMs

OFFSETS_A_FRAGMENT = 100_032
MS_A_FRAGMENT = 60_000
POINTS = 64
CHUNKS_A_POINT = 40
CHUNK_RECORDS = OFFSETS_A_FRAGMENT // (POINTS * CHUNKS_A_POINT)

ITEMS_A_BATCH = 25
STREAMS_A_BATCH = ITEMS_A_BATCH // 3
THREADS = 4
LOADED_WITHIN_S = 1800
_HEADERS = {
    "X-Amz-Target": "DynamoDB_20120810.BatchWriteItem",
    "Content-Type": "application/x-amz-json-1.0",
    # DynamoDB Local requires a signature, and does not check it.
    "Authorization": "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, "
    "Signature=0",
}


class _Item(Item):
    class Meta:
        table_name = "unused"


def write_log(stream: StreamId, fragments: int, *, url: str, table: str) -> None:
    """Put a stream of so many fragments into a table at `url`, with entries of about 1 KB, laid out by `store.items`.

    A million take about 4 minutes of two cores. Raises CannotMeasureError after 30.
    """
    began = time.monotonic()
    batches = -(-fragments // ITEMS_A_BATCH)
    http = urllib3.PoolManager(maxsize=THREADS)

    def put(items: list[Item]) -> None:
        put_items(http, items, url=url, table=table)

    def load(thread: int) -> None:
        for batch in range(thread, batches, THREADS):
            numbers = range(batch * ITEMS_A_BATCH, min((batch + 1) * ITEMS_A_BATCH, fragments))
            put([_entry_item(stream, number) for number in numbers])
            if time.monotonic() - began > LOADED_WITHIN_S:
                raise CannotMeasureError(f"{fragments:,} entries were not loaded after {LOADED_WITHIN_S} s")
            if batch % 4000 == 0 and batch:
                say(f"{batch * ITEMS_A_BATCH:,} entries loaded, {time.monotonic() - began:.0f} s")

    with ThreadPoolExecutor(THREADS) as pool:
        for loaded in [pool.submit(load, thread) for thread in range(THREADS)]:
            loaded.result()
    put([head_item(_Item, _head(stream, fragments)), registry_item(_Item, stream)])
    say(f"{fragments:,} entries loaded in {time.monotonic() - began:.0f} s")


def write_streams(streams: Sequence[StreamId], *, url: str, table: str) -> None:
    """Put streams of one fragment each into a table at `url`: entry, head and registration. 10,000 take half a minute.

    Raises CannotMeasureError.
    """
    http = urllib3.PoolManager(maxsize=THREADS)

    def put(some: Sequence[StreamId]) -> None:
        items = [(_entry_item(one, 0), head_item(_Item, _head(one, 1)), registry_item(_Item, one)) for one in some]
        put_items(http, [item for three in items for item in three], url=url, table=table)

    batches = [streams[start : start + STREAMS_A_BATCH] for start in range(0, len(streams), STREAMS_A_BATCH)]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(put, batches):
            pass


def put_items(http: urllib3.PoolManager, items: list[Item], *, url: str, table: str) -> None:
    """Write up to 25 items of any kind. Raises CannotMeasureError."""
    requests = [{"PutRequest": {"Item": item.serialize()}} for item in items]
    body = json.dumps({"RequestItems": {table: requests}}, default=_base64)
    answer = http.request("POST", url, body=body, headers=_HEADERS, retries=False)
    if answer.status != 200 or answer.json()["UnprocessedItems"]:
        raise CannotMeasureError(f"DynamoDB Local refused items: {answer.data[:500]!r}")


def entry_of(stream: StreamId, number: int) -> FragmentEntry:
    """Return the entry of a fragment of `write_log`, by its number; its links are those that a commit gives it."""
    return _entry(stream, number, SparseIndex(tuple(_point(number, point) for point in range(POINTS))))


def _entry(stream: StreamId, number: int, sparse: SparseIndex) -> FragmentEntry:
    first_offset = Offset(number * OFFSETS_A_FRAGMENT)
    next_offset = Offset(first_offset + OFFSETS_A_FRAGMENT)
    first_timestamp = TimestampMs(FIRST_TIMESTAMP + number * MS_A_FRAGMENT)
    last_timestamp = TimestampMs(first_timestamp + MS_A_FRAGMENT - 1)
    return FragmentEntry(
        first_offset=first_offset,
        next_offset=next_offset,
        first_timestamp=first_timestamp,
        last_timestamp=last_timestamp,
        greatest_timestamp=last_timestamp,
        epoch=Epoch(1),
        chunks=POINTS * CHUNKS_A_POINT,
        records=OFFSETS_A_FRAGMENT,
        messages=OFFSETS_A_FRAGMENT,
        data_bytes=POINTS * MIB,
        object_bytes=POINTS * MIB + 51_000,
        key=Keys().fragment(stream.incarnation, first_offset),
        crc32=number * 2_654_435_761 % (1 << 32),
        sparse=sparse,
        last_user_chunk=LastUserChunk(ChunkId(next_offset - CHUNK_RECORDS), POINTS * MIB - 26_000, last_timestamp),
        segment_offset=first_offset,
        prior_offset=first_offset if number else None,
        prior_timestamp=TimestampMs(first_timestamp - 1) if number else None,
    )


def _entry_item(stream: StreamId, number: int) -> Item:
    sparse = SparseIndex((_point(number, 0),))
    item = entry_item(_Item, stream.incarnation, _entry(stream, number, sparse))
    # Points are encoded as differences, so all but the first are the same in every fragment: encoding them once for all
    # saves most of the time.
    item.attribute_values["sparse_index"] = sparse.to_bytes() + _OTHER_POINTS
    return item


def _point(number: int, point: int) -> SparsePoint:
    timestamp = TimestampMs(FIRST_TIMESTAMP + number * MS_A_FRAGMENT + point * MS_A_FRAGMENT // POINTS)
    return SparsePoint(
        chunk_id=ChunkId(number * OFFSETS_A_FRAGMENT + point * CHUNKS_A_POINT * CHUNK_RECORDS),
        ordinal=point * CHUNKS_A_POINT,
        position=8 + point * MIB,
        timestamp=timestamp,
        greatest_before=TimestampMs(timestamp - 1) if point else timestamp,
    )


_FIRST_POINT = (_point(0, 0),)
_OTHER_POINTS = SparseIndex(_FIRST_POINT + tuple(_point(0, point) for point in range(1, POINTS))).to_bytes()[
    len(SparseIndex(_FIRST_POINT).to_bytes()) :
]


def _head(stream: StreamId, fragments: int) -> Head:
    return Head(
        stream=stream,
        revision=fragments,
        first_offset=Offset(0),
        next_offset=Offset(fragments * OFFSETS_A_FRAGMENT),
        first_timestamp=TimestampMs(FIRST_TIMESTAMP),
        greatest_timestamp=TimestampMs(FIRST_TIMESTAMP + fragments * MS_A_FRAGMENT - 1),
        fragments=fragments,
        chunks=fragments * POINTS * CHUNKS_A_POINT,
        records=fragments * OFFSETS_A_FRAGMENT,
        messages=fragments * OFFSETS_A_FRAGMENT,
        data_bytes=fragments * POINTS * MIB,
        object_bytes=fragments * (POINTS * MIB + 51_000),
    )


def _base64(value: Any) -> str:
    return b64encode(value).decode()
