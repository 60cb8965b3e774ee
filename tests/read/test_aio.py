"""The reader for asyncio."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from coldstream.errors import BadCrcError
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.read.aio import AsyncReader
from coldstream.read.client import ResolverClient
from coldstream.units import Offset
from tests.support.archive import STREAM, ChunkArchive, steady
from tests.support.http_archive import Fault, HttpArchive, HttpObjects, http_archive

TAIL = 200


@pytest.fixture
def where() -> Iterator[HttpArchive]:
    objects = HttpObjects()
    archive = ChunkArchive(objects=objects)
    for first in range(0, TAIL, 50):
        archive.add(first, steady(5, *range(10)))
    with http_archive(archive.table, objects) as served:
        yield served


def reader(where: HttpArchive, start: OffsetSpec = FIRST) -> AsyncReader:
    return AsyncReader(where.url, STREAM.vhost, STREAM.name, start)


def test_messages_come_exactly_from_the_offset_on_to_the_tail(where: HttpArchive) -> None:
    async def read() -> list[int]:
        async with reader(where, AtOffset(Offset(57))) as messages:
            found = [message.offset async for message in messages.messages()]
            assert messages.tail == messages.position == TAIL
            return found

    assert asyncio.run(read()) == list(range(57, TAIL))


def test_chunks_and_batches_come_too(where: HttpArchive) -> None:
    async def read() -> tuple[list[int], int]:
        chunks = [chunk.header.chunk_id async for chunk in reader(where).chunks()]
        return chunks, sum([len(batch.chunks) async for batch in reader(where).batches()])

    assert asyncio.run(read()) == (list(range(0, TAIL, 5)), 40)


def test_errors_come_out(where: HttpArchive) -> None:
    where.objects.faults = lambda get: Fault(flip_at=100)

    async def read() -> None:
        async with reader(where) as messages:
            async for _ in messages.messages():
                pass

    with pytest.raises(BadCrcError):
        asyncio.run(read())


def test_the_loop_goes_on_while_the_server_is_slow(where: HttpArchive) -> None:
    where.objects.faults = lambda get: Fault(stall_s=0.3) if get.number == 0 else None

    async def read() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.create_task(tick())
        async with reader(where) as messages:
            assert sum([1 async for _ in messages.messages()]) == TAIL
        ticker.cancel()
        return ticks

    assert asyncio.run(read()) > 5


def test_cancelling_ends_it_at_once_even_where_a_server_hangs(where: HttpArchive) -> None:
    where.objects.faults = lambda get: Fault(stall_s=30)

    async def read() -> None:
        async with reader(where) as messages:
            async for _ in messages.messages():
                pass

    async def cancel() -> None:
        task = asyncio.create_task(read())
        await asyncio.to_thread(where.objects.got_one.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    asyncio.run(cancel())
    assert time.monotonic() - started < 3
    while any(thread.name.startswith("coldstream-fetch") for thread in threading.enumerate()):
        assert time.monotonic() - started < 5
        time.sleep(0.01)


def test_cancelling_does_not_wait_for_a_resolver_that_hangs_and_whose_client_was_lent() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with ResolverClient(f"http://127.0.0.1:{silent.getsockname()[1]}") as client:

            async def read() -> None:
                async with AsyncReader(client, STREAM.vhost, STREAM.name) as messages:
                    async for _ in messages.messages():
                        pass

            started = time.monotonic()
            with pytest.raises(TimeoutError):
                asyncio.run(asyncio.wait_for(read(), 0.3))
            assert time.monotonic() - started < 3
