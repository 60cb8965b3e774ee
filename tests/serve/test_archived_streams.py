"""The recorded streams of a real broker, archived, and read by HTTP."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from coldstream.format.amqp.message import messages
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read.scan import ScanSlice, plan_scan, read_slice
from coldstream.serve.message_body import body_of
from coldstream.serve.options import ArchivedType, ServeOptions
from coldstream.store.keys import Keys
from coldstream.streams import DirectArchive
from coldstream.units import Offset
from tests.support.archive import ChunkArchive, steady
from tests.support.golden import GoldenLog, golden_logs
from tests.support.segments import MemoryArchive
from tests.support.serving import asgi_client, hosting

ROLLED = [log for log in golden_logs() if len(log.segments) > 1]
SMALL = ServeOptions(page_bytes=1000)


def bodies(archive: MemoryArchive) -> list[bytes]:
    found: list[bytes] = []
    for step in plan_scan(archive.table, archive.stream, Offset(0)):
        assert isinstance(step, ScanSlice)
        for chunk in read_slice(archive.objects, step):
            found += map(body_of, messages(chunk, source=step.key))
    return found


@pytest.mark.parametrize("log", ROLLED, ids=lambda log: log.stream)
def test_pages_of_a_recorded_stream_hold_the_bodies_of_its_messages(log: GoldenLog) -> None:
    async def run() -> None:
        archive = MemoryArchive(stream=StreamId(log.vhost, log.stream, Incarnation(log.incarnation)))
        archive.announce(log.directory)
        direct = DirectArchive(archive.table, archive.objects, archive.keys)
        async with hosting(direct, SMALL) as (_, app), asgi_client(app) as client:
            found, at, pages = b"", "-1", 0
            while True:
                page = await client.get(f"/v1/stream/{log.stream}", params={"offset": at})
                assert page.status_code == 200
                found, at, pages = found + page.content, page.headers["Stream-Next-Offset"], pages + 1
                if "Stream-Up-To-Date" in page.headers:
                    break
            expected = bodies(archive)
            assert expected
            assert found == b"".join(expected)
            assert pages > 1

    asyncio.run(run())


async def asked(archive: ChunkArchive, method: str, path: str = "/v1/stream/orders") -> httpx.Response:
    direct = DirectArchive(archive.table, archive.objects, Keys())
    options = ServeOptions(archived_types=(ArchivedType.parse("orders=application/json"),))
    async with hosting(direct, options) as (_, app), asgi_client(app) as client:
        return await client.request(method, path, headers={"Content-Type": "application/json"}, content=b"[1]")


@pytest.mark.parametrize(("method", "status"), [("POST", 405), ("DELETE", 405), ("PUT", 409)])
def test_an_archived_stream_takes_nothing(method: str, status: int) -> None:
    archive = ChunkArchive()
    archive.add(0, steady(10, 1000))
    assert asyncio.run(asked(archive, method)).status_code == status


def test_offsets_that_are_missing_are_told_with_where_the_stream_goes_on() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(10, 1000))
    archive.add(20, steady(10, 2000))
    answer = asyncio.run(asked(archive, "GET", "/v1/stream/orders?offset=0000000000000012_0000000000000000"))
    assert (answer.status_code, answer.headers["Stream-Next-Offset"]) == (410, "0000000000000020_0000000000000000")


def test_a_message_that_is_not_of_the_type_that_was_said_is_an_error_and_not_left_out() -> None:
    archive = ChunkArchive()
    archive.add(0, steady(10, 1000))
    answer = asyncio.run(asked(archive, "GET"))
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:coldstream:problem:archive-corrupt")
