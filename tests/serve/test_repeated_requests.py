"""Requests that a producer repeats: they are answered as the first one is, and no earlier."""

from __future__ import annotations

import asyncio

from tests.support.interposed import PATIENCE_S
from tests.support.interposed_archive import InterposedArchive
from tests.support.serving import asgi_client, hosting

URL = "/v1/stream/notes"
FIRST = {"Content-Type": "text/plain", "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}


def test_a_repeated_request_is_answered_once_the_first_one_is_durable() -> None:
    async def run() -> None:
        world = InterposedArchive()
        async with hosting(world.archive) as (_, app), asgi_client(app) as client:
            await client.put(URL, headers={"Content-Type": "text/plain"})
            # A write before: the stream is open to write, and its log has begun.
            assert (await client.post(URL, headers={"Content-Type": "text/plain"}, content=b"a")).status_code == 204
            with world.objects.held("put_new", lambda key, *_, **__: "wal" in key.split("/")) as put:
                first = asyncio.create_task(client.post(URL, headers=FIRST, content=b"b"))
                await put.entered()
                again = asyncio.create_task(client.post(URL, headers=FIRST, content=b"b"))
                done, _ = await asyncio.wait([again], timeout=0.2)
                assert not done
                put.release()
                async with asyncio.timeout(PATIENCE_S):
                    assert [one.status_code for one in await asyncio.gather(first, again)] == [200, 204]
            assert (await client.get(URL)).text == "ab"

    asyncio.run(run())


def test_a_repeated_request_closes_the_stream_if_the_first_one_was_cut_off_before() -> None:
    async def run() -> None:
        world = InterposedArchive()
        async with hosting(world.archive) as (_, app), asgi_client(app) as client:
            await client.put(URL, headers={"Content-Type": "text/plain"})
            assert (await client.post(URL, headers=FIRST, content=b"a")).status_code == 200
            again = await client.post(URL, headers={**FIRST, "Stream-Closed": "true"}, content=b"a")
            assert (again.status_code, again.headers["Stream-Closed"]) == (204, "true")
            assert (await client.post(URL, headers={"Content-Type": "text/plain"}, content=b"b")).status_code == 409

    asyncio.run(run())
