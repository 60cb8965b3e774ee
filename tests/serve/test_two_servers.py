"""Two servers on one archive, and a program that appends without one: who has a stream, and who only reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from coldstream.serve.options import ServeOptions
from coldstream.streams import DirectArchive, StreamClient
from tests.support.serving import asgi_client, hosting, memory_archive

TEXT = {"Content-Type": "text/plain"}
FRESH = ServeOptions(refresh_s=1e-9, check_owner_s=1e-9, takeover_pause_s=3600)
"""No answer is older than its request, and whoever lost a stream leaves it alone for the whole test."""


@asynccontextmanager
async def servers(archive: DirectArchive) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    async with AsyncExitStack() as stack:
        apps = [(await stack.enter_async_context(hosting(archive, FRESH)))[1] for _ in range(2)]
        first, second = [await stack.enter_async_context(asgi_client(app)) for app in apps]
        yield first, second


def test_a_server_reads_what_another_one_appends_and_takes_nothing_over() -> None:
    async def run() -> None:
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT, content=b"a")
            for more in (b"b", b"c"):
                assert (await second.get("/v1/stream/notes")).text.endswith(chr(more[0] - 1))
                assert (await first.post("/v1/stream/notes", headers=TEXT, content=more)).status_code == 204
            head = await second.head("/v1/stream/notes")
            assert head.headers["Stream-Next-Offset"] == "0000000000000003_0000000000000000"

    asyncio.run(run())


def test_a_write_takes_a_stream_over_and_the_server_before_reads_on() -> None:
    async def run() -> None:
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT, content=b"a")
            assert (await second.post("/v1/stream/notes", headers=TEXT, content=b"b")).status_code == 204
            refused = await first.post("/v1/stream/notes", headers=TEXT, content=b"never")
            assert (refused.status_code, refused.json()["type"]) == (503, "urn:coldstream:problem:served-elsewhere")
            again = await first.post("/v1/stream/notes", headers=TEXT, content=b"never")
            assert (again.status_code, again.headers["Retry-After"]) == (503, "3600")
            assert (await second.post("/v1/stream/notes", headers=TEXT, content=b"c")).status_code == 204
            assert (await first.get("/v1/stream/notes")).text == "abc"

    asyncio.run(run())


def test_reading_by_http_does_not_disturb_a_program_that_appends() -> None:
    async def run() -> None:
        archive = memory_archive()
        async with await StreamClient.open(archive) as client, servers(archive) as (server, _):
            await client.create("orders")
            stream = await client.open_stream("orders")
            for number in range(3):
                await stream.append([b"%d" % number])
                assert (await server.get("/v1/stream/orders")).content == b"012"[: number + 1]

    asyncio.run(run())


def test_a_deleted_stream_is_gone_at_the_other_server_and_one_that_follows_it_is_another() -> None:
    async def run() -> None:
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT, content=b"old")
            assert (await second.get("/v1/stream/notes")).text == "old"
            assert (await first.delete("/v1/stream/notes")).status_code == 204
            assert (await second.get("/v1/stream/notes")).status_code == 404
            await first.put("/v1/stream/notes", headers=TEXT, content=b"new")
            assert (await second.get("/v1/stream/notes")).text == "new"
            await first.delete("/v1/stream/notes")
            await first.put("/v1/stream/notes", headers=TEXT, content=b"newer")
            assert (await second.get("/v1/stream/notes")).text == "newer"

    asyncio.run(run())


def test_a_long_poll_at_a_server_that_only_reads_gets_what_another_one_appends() -> None:
    async def run() -> None:
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT)
            waiting = asyncio.ensure_future(second.get("/v1/stream/notes?offset=now&live=long-poll"))
            while not waiting.done():
                await first.post("/v1/stream/notes", headers=TEXT, content=b"x")
                await asyncio.sleep(0)
            assert set((await waiting).text) == {"x"}

    asyncio.run(run())


def test_creating_a_stream_again_at_another_server_takes_nothing_over() -> None:
    async def run() -> None:
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT, content=b"a")
            assert (await second.put("/v1/stream/notes", headers=TEXT)).status_code == 200
            assert (await first.post("/v1/stream/notes", headers=TEXT, content=b"b")).status_code == 204
            same = await second.put("/v1/stream/notes", headers=TEXT)
            assert same.headers["Stream-Next-Offset"] == "0000000000000002_0000000000000000"

    asyncio.run(run())


def test_what_a_server_knew_of_a_producer_is_no_answer_once_another_one_has_the_stream() -> None:
    def sent(epoch: int, seq: int) -> dict[str, str]:
        return {**TEXT, "Producer-Id": "p", "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}

    async def run(epoch: int, seq: int) -> None:
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT)
            for server, *known in ((first, 0, 0), (second, 0, 1), (second, 1, 0)):
                assert (await server.post("/v1/stream/notes", headers=sent(*known), content=b"x")).status_code == 200
            answer = await first.post("/v1/stream/notes", headers=sent(epoch, seq), content=b"y")
            assert answer.json()["type"] == "urn:coldstream:problem:served-elsewhere"

    asyncio.run(run(0, 2))  # a gap, for what the first one knew
    asyncio.run(run(1, 1))  # an epoch that does not begin at 0
    asyncio.run(run(0, 0))


def test_a_message_for_a_new_stream_is_not_taken_for_one_that_the_deleted_stream_has() -> None:
    async def run() -> None:
        producer = {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        async with servers(memory_archive()) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT)
            assert (await first.post("/v1/stream/notes", headers=producer, content=b"old")).status_code == 200
            assert (await second.delete("/v1/stream/notes")).status_code == 204
            assert (await second.put("/v1/stream/notes", headers=TEXT)).status_code == 201
            for _ in range(2):
                answer = await first.post("/v1/stream/notes", headers=producer, content=b"new")
            assert answer.status_code == 200
            assert (await first.get("/v1/stream/notes")).text == "new"

    asyncio.run(run())


def test_a_deletion_that_is_refused_does_not_happen_later() -> None:
    async def run() -> None:
        archive = memory_archive()
        async with servers(archive) as (first, second):
            await first.put("/v1/stream/notes", headers=TEXT, content=b"a")
            assert (await second.post("/v1/stream/notes", headers=TEXT, content=b"b")).status_code == 204
            assert (await first.delete("/v1/stream/notes")).status_code == 503
            assert (await second.post("/v1/stream/notes", headers=TEXT, content=b"c")).status_code == 204
        async with servers(archive) as (first, _):
            assert (await first.get("/v1/stream/notes")).text == "abc"

    asyncio.run(run())
