"""How the two caches share one memory: blocks keep a quarter of it, and newest batches the rest."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from coldstream.streams.cache.stream_caches import BLOCK_SHARE, StreamCaches
from coldstream.units import Offset
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.cached_chunks import life, opaque_chunk

LIMIT = 40_000
FAR = Offset(1 << 40)


def archive_of(chunks: int) -> ChunkArchive:
    """An archive of chunks of about 600 bytes, three of them a block."""
    archive = ChunkArchive(message_bytes=550, sparse_bytes=1500)
    archive.add(0, steady(1, *range(chunks)))
    return archive


def fill(caches: StreamCaches) -> None:
    """Fill the memory with archived batches of another stream."""
    at = 0
    while caches.log.pinned_bytes < LIMIT - 1000:
        one = opaque_chunk(at, size_bytes=500)
        assert caches.budget.try_reserve(one.memory_bytes)
        caches.log.add(life(), one)
        at += 1
    caches.log.release(life(), Offset(at))


async def test_blocks_take_no_more_than_their_share_from_the_newest_batches_and_no_less() -> None:
    archive = archive_of(60)
    with ThreadPoolExecutor(2) as pool:
        caches = StreamCaches(archive.table, archive.objects, pool, LIMIT, threads=2)
        fill(caches)
        at = 0
        while found := await caches.read(STREAM, Offset(at), FAR, 1000):
            at = found[-1].next_offset
            assert caches.budget.used <= LIMIT
            if at == 60:
                break
        share = LIMIT // BLOCK_SHARE
        # While blocks are read they take twice their bytes; what is free after that, the next ones take.
        assert share // 2 < caches.blocks.held_bytes <= 2 * share
        assert caches.log.flushed_bytes >= LIMIT - 2 * share - 2000
        await caches.close()


async def test_what_nobody_else_needs_is_taken_by_whoever_does() -> None:
    archive = archive_of(60)
    with ThreadPoolExecutor(2) as pool:
        caches = StreamCaches(archive.table, archive.objects, pool, LIMIT, threads=2)
        at = 0
        while at < 60:
            at = (await caches.read(STREAM, Offset(at), FAR, 1000))[-1].next_offset
        assert caches.blocks.held_bytes > LIMIT // 2
        # And given back, all of it, to who appends.
        assert caches.budget.try_reserve(LIMIT)
        assert caches.blocks.held_bytes == 0
        await caches.close()
