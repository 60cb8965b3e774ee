"""The archive as the agent uses it."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import ClassVar

import pytest

from coldstream.agent import archive as archive_module
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.stream_file import PendingLoss
from coldstream.archive.commit import commit_fragment
from coldstream.errors import AccessDeniedError, InvalidSettingError, OtherClusterError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest import announcer as announcer_module
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import LastUserChunk
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.ports import LogPage
from coldstream.units import ChunkId, Offset, TimestampMs
from tests.manifest.samples import fragment
from tests.support.rig import Bus
from tests.support.segments import STREAM, MemoryArchive

INCARNATION = Incarnation("__orders_1763700000000000000")
SETTINGS = {
    "COLDSTREAM_BUCKET": "bucket",
    "COLDSTREAM_TABLE": "table",
    "COLDSTREAM_EVENT_BUS": "bus",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


class Denied(MemoryTable):
    def log_from_offset(self, incarnation: Incarnation, offset: Offset, limit: int) -> LogPage:
        raise AccessDeniedError("ExpiredToken")


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> ArchiveClient:
    """An archive whose first clients have credentials that are expired, and those after them good ones."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    tables = iter([Denied(), MemoryTable()])
    monkeypatch.setattr(announcer_module, "DynamoTable", lambda _: next(tables))
    monkeypatch.setattr(announcer_module, "S3Objects", lambda *_, **__: MemoryObjects())
    return ArchiveClient.from_environment(SETTINGS, BandwidthLimit(None), 4)


async def test_clients_made_anew_find_new_credentials(archive, monkeypatch):
    monkeypatch.setattr(archive_module, "RENEW_S", 0.0)
    with pytest.raises(AccessDeniedError):
        await archive.covered_to(INCARNATION, Offset(0), Offset(9))
    archive.renew()
    async with asyncio.timeout(5):
        while True:
            try:
                assert await archive.covered_to(INCARNATION, Offset(0), Offset(9)) == 0
            except AccessDeniedError:
                await asyncio.sleep(0.01)
            else:
                break


async def test_clients_are_not_made_anew_all_the_time(archive):
    archive.renew()
    with pytest.raises(AccessDeniedError):
        await archive.covered_to(INCARNATION, Offset(0), Offset(9))


@pytest.mark.parametrize("missing", ["COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_EVENT_BUS"])
def test_what_names_the_archive_has_to_be_set(missing):
    settings = {name: value for name, value in SETTINGS.items() if name != missing}
    with pytest.raises(InvalidSettingError, match=missing):
        ArchiveClient.from_environment(settings, BandwidthLimit(None), 4)


async def test_the_last_message_is_found_however_many_fragments_have_none():
    table = MemoryTable()
    stream = StreamId("/", "orders", INCARNATION)
    last = LastUserChunk(ChunkId(0), 8, TimestampMs(0))
    commit_fragment(table, stream, replace(fragment(0, 10), last_user_chunk=last), lambda: TimestampMs(0))
    for first in range(10, 45):
        commit_fragment(table, stream, fragment(first, first + 1), lambda: TimestampMs(0))
    archive = ArchiveClient(table, MemoryObjects(), Bus(MemoryArchive()), Keys(""), BandwidthLimit(None))
    found = await archive.last_entry(INCARNATION)
    assert found is not None
    assert found.next_offset == 10
    archive.stop()


async def test_making_clients_anew_does_not_stop_the_loop(archive, monkeypatch):
    monkeypatch.setattr(archive_module, "RENEW_S", 0.0)
    is_free = threading.Event()
    monkeypatch.setattr(archive, "_connect", lambda: is_free.wait(10))
    started = time.monotonic()
    archive.renew()
    assert time.monotonic() - started < 5
    is_free.set()
    archive.stop()


def test_a_stopped_archive_makes_no_clients(archive, monkeypatch):
    monkeypatch.setattr(archive_module, "RENEW_S", 0.0)
    archive.stop()
    archive.renew()


async def test_the_cluster_of_the_settings_is_the_one_that_is_announced_for(monkeypatch):
    class Bus:
        sources: ClassVar[list[str]] = []

        def put(self, *, source: str, detail_type: str, detail: str) -> None:
            self.sources.append(source)

    table = MemoryTable()
    table.bind_cluster("/", "orders", Cluster("eu"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setattr(announcer_module, "DynamoTable", lambda _: table)
    monkeypatch.setattr(announcer_module, "S3Objects", lambda *_, **__: MemoryObjects())
    monkeypatch.setattr(announcer_module, "EventBridgeBus", lambda _: Bus())
    for name, source in (("eu", "coldstream.agent.eu"), ("us", "coldstream.agent.us"), ("", "coldstream.agent")):
        archive = ArchiveClient.from_environment(SETTINGS | {"COLDSTREAM_CLUSTER": name}, BandwidthLimit(None), 4)
        await archive.announce_loss(STREAM, PendingLoss(Offset(0), Offset(9), "the disk was full"))
        assert Bus.sources[-1] == source
        if name == "eu":
            await archive.check_accepted(STREAM)
        else:
            with pytest.raises(OtherClusterError):
                await archive.check_accepted(STREAM)
        archive.stop()
    with pytest.raises(InvalidSettingError, match="COLDSTREAM_CLUSTER"):
        ArchiveClient.from_environment(SETTINGS | {"COLDSTREAM_CLUSTER": "a/b"}, BandwidthLimit(None), 4)
