"""A slice is delivered once the archive is known to have looked at it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.slice_delivery import MAX_DROPPED, SliceDelivery
from coldstream.agent.upload_slots import UploadSlots
from coldstream.errors import UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.announcer import Announcement, SliceOutcome
from coldstream.ingest.stage import find_rolled
from coldstream.manifest.deletion import plan_delete, plan_undelete
from coldstream.units import TimestampMs
from tests.support.rig import Bus
from tests.support.segments import STREAM, MemoryArchive, write_stream


async def test_a_contested_slice_whose_copy_was_dropped_while_its_stream_was_deleted_is_announced_again_at_once(
    tmp_path: Path,
) -> None:
    write_stream(tmp_path / "orders")
    archive = MemoryArchive()
    table, bus = archive.table, Bus(archive)
    client = ArchiveClient(table, archive.objects, bus, archive.keys, BandwidthLimit(None))
    delivery = SliceDelivery(client, UploadSlots(1), AgentMetrics(), None)
    slice_ = find_rolled(tmp_path / "orders")[0]

    def deliver(*, is_contested: bool) -> asyncio.Task[None]:
        progress: Any = SimpleNamespace()  # which is told the state
        return asyncio.create_task(
            delivery.deliver(slice_, STREAM, progress, is_backfill=False, is_contested=is_contested)
        )

    async def announced(number: int) -> None:
        async with asyncio.timeout(60):
            while len(bus.announced) < number:  # noqa: ASYNC110  what is waited for has no event
                await asyncio.sleep(0.01)

    first = deliver(is_contested=False)
    await announced(1)
    bus.handle()
    await first
    contested = deliver(is_contested=True)
    await announced(2)
    head = table.head(STREAM.incarnation)
    assert head is not None
    deletion = plan_delete(head, TimestampMs(1), TimestampMs(9), "ann")
    table.apply(deletion)
    bus.handle()
    table.apply(plan_undelete(deletion.head, TimestampMs(2), "ann"))
    await announced(3)
    assert not contested.done()
    bus.handle()
    await contested
    assert len(bus.announced) == 3


class _DroppingClient(ArchiveClient):
    """An archive all of whose copies are dropped, without a word of why."""

    async def outcome(self, announcement: Announcement) -> SliceOutcome:
        return SliceOutcome.UNKNOWN


async def test_a_slice_whose_copies_are_dropped_again_and_again_is_left_after_a_few(tmp_path: Path) -> None:
    write_stream(tmp_path / "orders")
    archive = MemoryArchive()
    bus = Bus(archive)
    client = _DroppingClient(archive.table, archive.objects, bus, archive.keys, BandwidthLimit(None))
    delivery = SliceDelivery(client, UploadSlots(1), AgentMetrics(), None)
    progress: Any = SimpleNamespace()  # which is told the state
    with pytest.raises(UnavailableError, match=f"was dropped {MAX_DROPPED} times"):
        await delivery.deliver(
            find_rolled(tmp_path / "orders")[0], STREAM, progress, is_backfill=False, is_contested=True
        )
    assert len(bus.announced) == MAX_DROPPED
