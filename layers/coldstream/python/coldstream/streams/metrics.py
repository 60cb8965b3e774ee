"""`StreamMetrics`: what a client has done and holds, of all its streams together, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.streams.cache.stream_caches import StreamCaches
from coldstream.streams.flush.flusher import FlushCounts
from coldstream.streams.wal.counters import WalCounters
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class StreamMetrics:
    """Counters of a client since it was opened, and gauges of the moment. Sizes are in bytes, times in seconds.

    Gauges: `open_streams` can be appended to. `memory_bytes` of `memory_limit_bytes` are in use, among them
    `unflushed_bytes`, durable and not in the archive yet, `cached_bytes`, the newest that are, and `block_bytes`, read
    from the archive. `memory_waiting` calls wait for memory. `unflushed_age_s` is the age of the oldest unflushed
    batch, 0 if there is none: how far the archive lags behind. How far a reader lags is `handle.confirmed` less its
    place.

    Counters: `wal_puts` were sent, those that repeat one included, with `wal_put_bytes`; `wal_chunks` were
    acknowledged, `wal_ack_s` after they were appended, in sum. `flushes` put `flushed_bytes` into the archive;
    `flush_failures` are attempts that were made again, or given up. `cache_hits` are reads that the newest batches
    answered, `cache_misses` those that they could not. Of the latter, `block_hits` needed no request, and
    `block_misses` waited for one. `archive_gets` are GETs of `archive_get_bytes`, `archive_plans` looks at the
    manifest, a GetItem and a Query each. `read_ahead_bytes` were read before anybody asked, and
    `read_ahead_wasted_bytes` of them evicted before anybody did.
    """

    open_streams: int
    memory_bytes: int
    memory_limit_bytes: int
    memory_waiting: int
    unflushed_bytes: int
    unflushed_age_s: float
    cached_bytes: int
    block_bytes: int
    wal_puts: int
    wal_put_bytes: int
    wal_chunks: int
    wal_ack_s: float
    flushes: int
    flushed_bytes: int
    flush_failures: int
    cache_hits: int
    cache_misses: int
    block_hits: int
    block_misses: int
    archive_gets: int
    archive_get_bytes: int
    archive_plans: int
    read_ahead_bytes: int
    read_ahead_wasted_bytes: int

    @classmethod
    def of(
        cls,
        open_streams: int,
        caches: StreamCaches,
        flushed: FlushCounts,
        wal: WalCounters,
        now: TimestampMs,
    ) -> StreamMetrics:
        """Take them of the parts of a client. Takes time with the number of streams that have something unflushed."""
        budget, newest, blocks = caches.budget, caches.log, caches.blocks
        oldest = newest.oldest_pinned()
        return cls(
            open_streams=open_streams,
            memory_bytes=budget.used,
            memory_limit_bytes=budget.limit_bytes,
            memory_waiting=budget.waiting,
            unflushed_bytes=newest.pinned_bytes,
            unflushed_age_s=0.0 if oldest is None else max(0, now - oldest) / 1000,
            cached_bytes=newest.flushed_bytes,
            block_bytes=blocks.held_bytes,
            wal_puts=wal.puts,
            wal_put_bytes=wal.put_bytes,
            wal_chunks=wal.chunks,
            wal_ack_s=wal.ack.sum_s,
            flushes=flushed.flushes,
            flushed_bytes=flushed.size_bytes,
            flush_failures=flushed.failures,
            cache_hits=newest.counts.hits,
            cache_misses=newest.counts.misses,
            block_hits=blocks.counts.hits,
            block_misses=blocks.counts.misses,
            archive_gets=blocks.counts.gets,
            archive_get_bytes=blocks.counts.get_bytes,
            archive_plans=blocks.plans,
            read_ahead_bytes=blocks.counts.read_ahead_bytes,
            read_ahead_wasted_bytes=blocks.counts.wasted_bytes,
        )


GAUGES = frozenset(
    {
        "open_streams",
        "memory_bytes",
        "memory_limit_bytes",
        "memory_waiting",
        "unflushed_bytes",
        "unflushed_age_s",
        "cached_bytes",
        "block_bytes",
    }
)
"""The fields that may fall again; all others only rise."""
