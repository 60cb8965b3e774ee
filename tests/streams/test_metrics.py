"""What a client tells of itself: gauges of what it holds, counters of what it did."""

from __future__ import annotations

from dataclasses import asdict, fields

from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive, StreamClient, StreamMetrics
from coldstream.streams.metrics import GAUGES
from coldstream.units import Offset, TimestampMs
from tests.support.interposed_archive import InterposedArchive

NOW = 1_763_700_000_000


async def test_metrics_follow_a_batch_from_the_log_into_the_archive_and_back() -> None:
    now = NOW
    archive = DirectArchive(MemoryTable(), MemoryObjects(), Keys(""), lambda: TimestampMs(now))
    async with await StreamClient.open(archive) as client:
        await client.create("s")
        stream = await client.open_stream("s")
        await stream.append([b"a" * 1000])
        now += 2500
        after_append = client.metrics()
        assert (after_append.open_streams, after_append.wal_chunks, after_append.flushes) == (1, 1, 0)
        assert after_append.wal_puts >= 1
        assert after_append.wal_put_bytes > 1000
        assert after_append.unflushed_bytes == after_append.memory_bytes > 1000
        assert after_append.unflushed_age_s == 2.5
        await stream.fetch(Offset(0))
        await stream.flush()
        after_flush = client.metrics()
        assert (after_flush.unflushed_bytes, after_flush.unflushed_age_s, after_flush.flushes) == (0, 0.0, 1)
        assert after_flush.cached_bytes == after_append.unflushed_bytes
        assert after_flush.flushed_bytes > 1000
        assert (after_flush.cache_hits, after_flush.archive_gets) == (1, 0)
        await stream.close()
        assert client.metrics().open_streams == client.metrics().cached_bytes == 0
        again = await client.open_stream("s")
        await again.fetch(Offset(0))
        after_read = client.metrics()
        assert (after_read.cache_misses, after_read.block_misses, after_read.archive_gets) == (1, 1, 1)
        assert after_read.archive_plans == 1
        assert after_read.block_bytes == after_read.memory_bytes > 1000
        for name in asdict(after_read).keys() - GAUGES:
            assert getattr(after_append, name) <= getattr(after_flush, name) <= getattr(after_read, name)


async def test_what_a_log_counts_is_counted_once_however_many_logs_there_were() -> None:
    world = InterposedArchive()
    async with await world.open() as client:
        await client.create("s")
        stream = await client.open_stream("s")
        await stream.append([b"a"])
        await world.seal_wal_of(stream)
        await stream.append([b"b"])
        assert client.metrics().wal_chunks == 2


def test_gauges_are_fields() -> None:
    assert {one.name for one in fields(StreamMetrics)} > GAUGES
