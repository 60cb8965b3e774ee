"""When streams end by themselves, whoever uses them, and at whichever server."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from coldstream.serve import stream_host
from coldstream.serve.options import ServeOptions
from coldstream.serve.stream_host import StreamHost
from coldstream.units import TimestampMs
from tests.support.serving import asgi_client, hosting, memory_archive

HOUR_S = 3600
OPTIONS = ServeOptions(refresh_s=1e-9, check_owner_s=1e-9)


class ServerClock:
    """The time of all servers, which the test moves."""

    def __init__(self) -> None:
        self.s = 1_700_000_000

    def __call__(self) -> TimestampMs:
        return TimestampMs(self.s * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ServerClock:
    found = ServerClock()
    monkeypatch.setattr(stream_host, "now_ms", found)
    return found


async def create(client: httpx.AsyncClient, **headers: str) -> None:
    sent = {"Content-Type": "text/plain", **{name.replace("_", "-"): text for name, text in headers.items()}}
    assert (await client.put("/v1/stream/notes", headers=sent, content=b"a")).status_code == 201


async def names(host: StreamHost) -> list[str]:
    return [info.name async for info in host.client.list()]


@pytest.mark.parametrize(
    "lifetime", [{"Stream_TTL": str(HOUR_S)}, {"Stream_Expires_At": "2023-11-14T23:13:20Z"}], ids=["ttl", "expires-at"]
)
def test_a_stream_whose_time_is_over_goes_also_if_nobody_asks_for_it(
    clock: ServerClock, lifetime: dict[str, str]
) -> None:
    async def run() -> None:
        archive = memory_archive()
        async with hosting(archive, OPTIONS) as (_, app), asgi_client(app) as client:
            await create(client, **lifetime)
        async with hosting(archive, OPTIONS) as (host, _):
            clock.s += HOUR_S // 2
            await host.drop_expired()
            assert await names(host) == ["notes"]
        async with hosting(archive, OPTIONS) as (host, _):
            clock.s += HOUR_S
            await host.drop_expired()
            assert await names(host) == []

    asyncio.run(run())


def test_looking_at_a_stream_without_reading_it_does_not_make_it_live_longer(clock: ServerClock) -> None:
    async def run() -> None:
        archive = memory_archive()
        async with hosting(archive, OPTIONS) as (_, app), asgi_client(app) as client:
            await create(client, Stream_TTL=str(HOUR_S))
        codes = []
        for _ in range(15):
            clock.s += HOUR_S // 12
            # Each time by another server, which has to open it.
            async with hosting(archive, OPTIONS) as (_, app), asgi_client(app) as client:
                codes.append((await client.head("/v1/stream/notes")).status_code)
        # What was not noted when the server closed counts a tenth of the TTL at most.
        assert codes[:11] == [200] * 11
        assert codes[-1] == 404

    asyncio.run(run())


def test_a_use_at_one_server_counts_at_another(clock: ServerClock) -> None:
    async def run() -> None:
        archive = memory_archive()
        async with (
            hosting(archive, OPTIONS) as (_, first),
            hosting(archive, OPTIONS) as (_, second),
            asgi_client(first) as writer,
            asgi_client(second) as reader,
        ):
            await create(writer, Stream_TTL=str(HOUR_S))
            for _ in range(6):
                clock.s += HOUR_S // 2
                assert (await reader.get("/v1/stream/notes")).status_code == 200
            assert (await writer.head("/v1/stream/notes")).status_code == 200
            clock.s += 2 * HOUR_S
            assert [(await one.head("/v1/stream/notes")).status_code for one in (writer, reader)] == [404, 404]

    asyncio.run(run())
