"""Pages of the list of streams, at ten thousand and a hundred thousand streams."""

from __future__ import annotations

import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, process_time
from typing import Any

import urllib3

from bench.aws import sdk_environment
from bench.dynamodb import LocalDynamoDB
from bench.harness import MB, Aim, Cell, Section, in_child, percentile, say
from bench.load import FIRST_TIMESTAMP, stream
from bench.local_s3 import LocalS3
from bench.log import ITEMS_A_BATCH, THREADS, put_items
from coldstream.browse.catalogue import StreamCatalogue
from coldstream.browse.catalogue_query import CatalogueColumn, CatalogueQuery
from coldstream.manifest.entry import Head
from coldstream.store.items import Item, head_item, registry_item
from coldstream.store.table import DynamoTable
from coldstream.units import Offset, TimestampMs, now_ms

SIZES = (10_000, 100_000)
AIMED_AT = 10_000
PAGES = 500
AIM_MS = 300.0

HOW = f"""\
The heads of all streams are in DynamoDB Local. A new process reads them as the console does when it is first asked,
a hundred at a time, four requests in flight. Then it makes {PAGES} pages of 50 streams each, one after the other: of a
random column, either way, of a random page, half of them with a search that it has not seen before. The first page of
each order sorts, and is among them. Memory is what the catalogue holds, by tracemalloc, in a process of its own."""


class _Item(Item):
    class Meta:
        table_name = "unused"


def measure() -> Section:
    """Measure the first read, pages, and memory."""
    rows: list[tuple[Cell, ...]] = []
    results: dict[int, float] = {}
    with LocalS3() as s3, LocalDynamoDB() as dynamodb:
        environment = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
        written = 0
        for streams in SIZES:
            say(f"writing the heads of {streams:,} streams")
            write_heads(range(written, streams), url=dynamodb.url, table=dynamodb.table)
            written = streams
            say(f"listing {streams:,} streams")
            run = in_child("bench.browsing:list_streams", {"table": dynamodb.table, "pages": PAGES}, environment)
            held = in_child("bench.browsing:hold_streams", {"table": dynamodb.table}, environment)
            seconds: list[float] = run.answer["seconds"]
            results[streams] = 1000 * percentile(seconds, 99)
            rows.append(
                (
                    streams,
                    run.answer["first_s"],
                    run.answer["first_cpu_s"],
                    1000 * percentile(seconds, 50),
                    results[streams],
                    1000 * max(seconds),
                    held.answer["held_bytes"] / MB,
                )
            )
    return Section(
        title="The list of streams",
        how=HOW,
        columns=("streams", "first read s", "CPU s", "p50 ms", "p99 ms", "most ms", "held MB"),
        rows=tuple(rows),
        aims=(
            Aim(
                f"a page of {AIMED_AT:,} streams: p99 under {AIM_MS:g} ms",
                f"{results[AIMED_AT]:.1f} ms",
                results[AIMED_AT] < AIM_MS,
            ),
        ),
    )


def write_heads(numbers: range, *, url: str, table: str) -> None:
    """Put the heads of these streams into a table at `url`, and register them. Raises CannotMeasureError."""
    http = urllib3.PoolManager(maxsize=THREADS)
    batches = [numbers[at : at + ITEMS_A_BATCH // 2] for at in range(0, len(numbers), ITEMS_A_BATCH // 2)]

    def put(batch: range) -> None:
        items: list[Item] = []
        for number in batch:
            items += [head_item(_Item, _head(number)), registry_item(_Item, stream(number))]
        put_items(http, items, url=url, table=table)

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(put, batches):
            pass


def list_streams(table: str, pages: int) -> dict[str, Any]:
    """Read all streams, and make pages. Called by `harness.in_child`."""
    catalogue = StreamCatalogue(DynamoTable(table), now=now_ms, refresh_s=3600.0)
    began, began_cpu = perf_counter(), process_time()
    catalogue.page(CatalogueQuery())
    first_s, first_cpu_s = perf_counter() - began, process_time() - began_cpu
    dice = random.Random(1)
    seconds = []
    for number in range(pages):
        query = CatalogueQuery(
            search=f"{dice.randrange(10, 1000)}" if number % 2 else "",
            sort=dice.choice(list(CatalogueColumn)),
            descending=dice.random() < 0.5,
            page=dice.randrange(1, 20),
        )
        began = perf_counter()
        catalogue.page(query)
        seconds.append(perf_counter() - began)
    return {"first_s": first_s, "first_cpu_s": first_cpu_s, "seconds": seconds}


def hold_streams(table: str) -> dict[str, Any]:
    """Read all streams, sort them by every column, and return the bytes that are held then."""
    catalogue = StreamCatalogue(DynamoTable(table), now=now_ms, refresh_s=3600.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for column in CatalogueColumn:
        catalogue.page(CatalogueQuery(sort=column))
    return {"held_bytes": tracemalloc.get_traced_memory()[0] - before}


def _head(number: int) -> Head:
    """Return a head like that of a stream in use: no two are of one size."""
    dice = random.Random(number)
    fragments = dice.randrange(1, 100_000)
    messages = fragments * dice.randrange(1, 100_000)
    size_bytes = messages * dice.randrange(50, 2_000)
    last = FIRST_TIMESTAMP + dice.randrange(10**10)
    return Head(
        stream(number),
        revision=fragments,
        first_offset=Offset(0),
        next_offset=Offset(messages),
        first_timestamp=TimestampMs(FIRST_TIMESTAMP),
        greatest_timestamp=TimestampMs(last),
        fragments=fragments,
        chunks=fragments * 100,
        records=messages,
        messages=messages,
        data_bytes=size_bytes,
        object_bytes=size_bytes // dice.randrange(1, 9),
        gaps=dice.randrange(2),
    )
