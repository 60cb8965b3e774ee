"""Sharded streams: what growth asks of broker and table, keys hashed a second, and what the order of keys costs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mmh3

from bench.archive import archive, resolver
from bench.aws import sdk_environment
from bench.dynamodb import any_dynamodb
from bench.harness import (
    MB,
    MIB,
    Aim,
    CannotMeasureError,
    Cell,
    ChildRun,
    Section,
    Stopwatch,
    in_child,
    in_turns,
    median_runs,
    say,
)
from bench.load import FIRST_TIMESTAMP, make_segment, stream
from bench.local_s3 import LocalS3
from coldstream.manifest.shard_changes import bound, doubled, first_map, sealed
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.routing.modulus import modulus_hash
from coldstream.routing.murmur3 import partition_of
from coldstream.shards.apply import apply_shards
from coldstream.shards.context import ShardContext
from coldstream.shards.definition_file import definitions_of
from coldstream.shards.memory_broker import MemoryShardBroker
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset, TimestampMs

SIZES = (2, 4, 8, 16, 32, 64, 128)
KEYS = 200_000
PARTITIONS = 2
SEGMENT_BYTES = 50_000_000
MESSAGE_BYTES = (200, 1000)
ROUNDS = 5
MOST_A_PARTITION = 5.0
NOW = TimestampMs(FIRST_TIMESTAMP)

HOW = f"""\
Growth: `coldstream shards apply` takes a super stream from N to 2N partitions, with no producer left from before, on
the in-memory doubles of broker and table, which count what is asked of them; a burst of bindings counts as one. Keys:
{KEYS:,} keys of about 10 characters are hashed in one thread; the baseline is `mmh3` alone. Reading: {PARTITIONS}
partitions and the {PARTITIONS} that they grew by, {SEGMENT_BYTES // MB} MB each, are read out of the archive by
`ShardedReader`, all messages with their bodies, from an S3 without limits; the baseline is the same in the order of
arrival. {ROUNDS} rounds, in turns, each in a new process; medians."""


def measure() -> Section:
    """Measure growth at several sizes, hashes, and reading in two orders."""
    costs = {size: growth_requests(size) for size in SIZES}
    rows: list[tuple[Cell, ...]] = [
        (f"growth of {size} to {2 * size}: requests to broker and table", f"{at_broker} and {at_table}", "")
        for size, (at_broker, at_table) in costs.items()
    ]
    slope = (sum(costs[SIZES[-1]]) - sum(costs[SIZES[0]])) / (SIZES[-1] - SIZES[0])
    hashes = _hashes()
    rows += [(what, rate, rate / hashes["mmh3 alone, keys/s"]) for what, rate in hashes.items()]
    reading = _reading()
    rates = {order: run.messages_per_s for order, run in reading.items()}
    rows += [(f"reading by {order}, messages/s", rate, rate / rates["arrival"]) for order, rate in rates.items()]
    ratio = rates["key"] / rates["arrival"]
    return Section(
        title="Sharded streams",
        how=HOW,
        columns=("what", "figure", "of the baseline"),
        rows=tuple(rows),
        aims=(
            Aim(
                f"growth costs {MOST_A_PARTITION:g} requests for each partition that is added, or less",
                f"{slope:.1f}",
                slope <= MOST_A_PARTITION,
            ),
            Aim("the order of keys is read at 0.9x of the order of arrival, or more", f"{ratio:.2f}x", ratio >= 0.9),
        ),
    )


def growth_requests(size: int) -> tuple[int, int]:
    """Return what is asked of the broker and of the table to grow from a number of partitions to twice that."""
    broker, table = MemoryShardBroker("rabbit@a"), CountedTable()
    context = ShardContext(
        cast("ManifestTable", table),
        MemoryObjects(),
        Keys(""),
        broker,
        lambda: NOW,
        are_producers_restarted=True,
        pause=lambda _: None,
    )
    for number in (size, 2 * size):
        broker.calls.clear()
        table.calls.clear()
        (definition,) = definitions_of(
            f'[[shards]]\nname = "orders"\nkind = "super-stream"\nshards = {number}', source="bench"
        )
        # Two looks at the ends need time between them: here it passes with each run.
        report = apply_shards(context, definition)
        if report.waiting:
            context = replace(context, now=lambda: TimestampMs(NOW + 60_000))
            report = apply_shards(context, definition)
        if report.waiting:
            raise CannotMeasureError(f"the growth waits for {report.waiting}")
    return len(broker.calls), table.calls.total()


class CountedTable:
    """A table in memory that counts the calls of its methods."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._table = MemoryTable()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._table, name)


def _hashes() -> dict[str, float]:
    keys = [f"order-{number}" for number in range(KEYS)]
    contenders: dict[str, Callable[[str], object]] = {
        "mmh3 alone, keys/s": lambda key: mmh3.hash(key, 104729, signed=False) % 8,
        "murmur3, keys/s": lambda key: partition_of(key, 8),
        "modulus, keys/s": lambda key: modulus_hash(key) % 8,
    }

    def run(hashed: Callable[[str], object]) -> Callable[[], float]:
        def timed() -> float:
            with Stopwatch() as stopwatch:
                for key in keys:
                    hashed(key)
            return len(keys) / stopwatch.seconds

        return timed

    rates = in_turns({what: run(hashed) for what, hashed in contenders.items()}, rounds=ROUNDS, label="hashing: ")
    return {what: sorted(each)[len(each) // 2] for what, each in rates.items()}


def grown_map(end: int) -> ShardMap:
    """Return the map of a stream that has grown from `PARTITIONS` to twice that, sealed at an offset."""
    names = [Partition(0, stream(number).name) for number in range(2 * PARTITIONS)]
    found = bound(
        first_map(
            "/",
            "bench",
            ShardKind.SUPER_STREAM,
            ShardHash.MURMUR3,
            partitions=names[:PARTITIONS],
            definition="",
            at=NOW,
        ),
        NOW,
    )
    grown = bound(doubled(found, names[PARTITIONS:], "", NOW), NOW)
    return sealed(grown, {number: Offset(end) for number in range(PARTITIONS)})


def read(url: str, end: int, order: str) -> dict[str, float]:
    """Read all partitions. Called by `harness.in_child`."""
    from coldstream.read.client import ResolverClient  # noqa: PLC0415  the other side does not need them
    from coldstream.read.sharded import ShardedReader  # noqa: PLC0415

    messages = 0
    with Stopwatch() as stopwatch, ResolverClient(url) as client:
        with ShardedReader(client, grown_map(end), order=order) as reader:  # type: ignore[arg-type]
            for _, message in reader.messages():
                messages += message.body is not None
        if reader.held:
            raise CannotMeasureError(f"partitions {reader.held} are held back")
    return {"seconds": stopwatch.seconds, "cpu_s": stopwatch.cpu_s, "messages": messages}


def _reading() -> dict[str, ChildRun]:
    with tempfile.TemporaryDirectory(prefix="coldstream-bench-") as directory, any_dynamodb() as dynamodb:
        say("making a segment")
        segment = make_segment(Path(directory), size_bytes=SEGMENT_BYTES, message_bytes=MESSAGE_BYTES)
        with LocalS3(warm_mib=2 * PARTITIONS * 2 * SEGMENT_BYTES // MIB) as s3:
            sdk = sdk_environment(s3_url=s3.url, dynamodb_url=dynamodb.url)
            for number in range(2 * PARTITIONS):
                archive([segment], stream(number), sdk, dynamodb.table)
            with resolver(sdk, dynamodb.table) as url:

                def run(order: str) -> Callable[[], ChildRun]:
                    arguments = {"url": url, "end": segment.next_offset, "order": order}
                    return lambda: in_child("bench.sharding:read", arguments)

                runs = median_runs(
                    in_turns(
                        {order: run(order) for order in ("arrival", "key", "time")}, rounds=ROUNDS, label="reading: "
                    )
                )
    if len({run.answer["messages"] for run in runs.values()}) != 1:
        raise CannotMeasureError("the orders did not read the same messages")
    return runs
