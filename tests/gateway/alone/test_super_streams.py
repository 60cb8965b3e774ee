"""Super streams: those with a map in the archive, those whose names are said to be some, and no others."""

from __future__ import annotations

import pytest

from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.frames.answers import PartitionsAnswer, RouteAnswer
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import CreateSuperStream, DeleteSuperStream, Partitions, Route
from coldstream.streams import DirectArchive, StreamClient
from tests.support.alone import RawClient, running_alone
from tests.support.written_maps import a_map, write


async def partitions(client: RawClient, name: str) -> tuple[str, ...] | int:
    found = await client.ask(lambda number: Partitions(number, name), PartitionsAnswer)
    return found.streams if isinstance(found, PartitionsAnswer) else found.code


async def route(client: RawClient, name: str, key: str) -> tuple[str, ...] | int:
    found = await client.ask(lambda number: Route(number, key, name), RouteAnswer)
    return found.streams if isinstance(found, RouteAnswer) else found.code


@pytest.fixture
async def archive() -> DirectArchive:
    archive = DirectArchive.in_memory()
    async with await StreamClient.open(archive) as client:
        for name in ("logs-0", "logs-1", "logs-2", "logs-extra", "gap-0", "gap-2", "plain-0"):
            await client.create(name)
    return archive


async def test_partitions_are_known_by_their_names_if_that_is_said(archive: DirectArchive) -> None:
    options = AloneOptions(super_streams=("logs", "gap", "none"))
    async with running_alone(archive, options=options) as alone, alone.client() as client:
        assert await partitions(client, "logs") == ("logs-0", "logs-1", "logs-2")
        assert await route(client, "logs", "1") == ("logs-1",)
        assert await route(client, "logs", "7") == ()
        for name in ("gap", "none", "plain"):
            assert await partitions(client, name) == Code.STREAM_DOES_NOT_EXIST
            assert await route(client, name, "0") == Code.STREAM_DOES_NOT_EXIST


async def test_a_map_in_the_archive_says_which_they_are(archive: DirectArchive) -> None:
    found = a_map()
    write(archive.table, found)
    async with running_alone(archive) as alone, alone.client(vhost=found.vhost) as client:
        assert await partitions(client, found.name) == tuple(one.name for one in found.current)
        assert await partitions(client, "logs") == Code.STREAM_DOES_NOT_EXIST


async def test_super_streams_are_neither_created_nor_deleted(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, alone.client() as client:
        made = await client.code(lambda number: CreateSuperStream(number, "s", ("s-0",), ("0",), {}))
        assert made == Code.ACCESS_REFUSED
        assert await client.code(lambda number: DeleteSuperStream(number, "s")) == Code.ACCESS_REFUSED
