"""An agent's archive: rolled segments are staged and announced, and what became of them is looked up."""

from __future__ import annotations

import asyncio
import os

from coldstream.agent.archive import ArchiveClient
from coldstream.archive.upload import Uploader
from coldstream.errors import ColdstreamError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.ingest.stage import find_rolled
from coldstream.units import MAX_OFFSET, Offset
from tests.faults.fault_acts import Outcome
from tests.faults.faulty_world import FRAGMENT_BYTES, KEYS, ORDERS, FaultyWorld, segments_directory


def forget_staged(world: FaultyWorld) -> Outcome:
    """Begin with nothing staged."""
    for event in world.staged:
        world.objects.delete(event.staged_key)
    return Outcome(b"")


def announce_as_agent(world: FaultyWorld) -> Outcome:
    """Stage and announce what the archive does not cover."""
    world.entered.add("agent")
    try:
        asyncio.run(_announce(world))
    except ColdstreamError as err:
        return Outcome(b"", f"{type(err).__name__}: {err}")
    except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
        return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)
    return Outcome(b"")


async def _announce(world: FaultyWorld) -> None:
    environment = {**os.environ, "COLDSTREAM_EVENT_BUS": "default"}
    archive = ArchiveClient.from_environment(environment, BandwidthLimit(None), 1)
    try:
        await archive.check_accepted(ORDERS)
        covered = await archive.covered_to(ORDERS.incarnation, Offset(0), Offset(MAX_OFFSET))
        assert covered == world.staged[0].first_offset
        staged = []
        for slice_ in find_rolled(segments_directory()):
            if slice_.first_offset >= covered:
                rolled = await archive.stage(slice_, ORDERS, None)
                await archive.outcome(await archive.announce(rolled))
                staged.append(rolled)
        world.staged = staged
    finally:
        archive.stop()


def find_staged(world: FaultyWorld) -> Outcome:
    """Upload what was announced, and find every message of the segments."""
    uploader = Uploader(world.table, world.objects, KEYS, FRAGMENT_BYTES)
    for event in world.staged:
        uploader.upload(event)
    head = world.table.head(ORDERS.incarnation)
    end = world.staged[-1].next_offset
    return Outcome(b"", None if head is not None and head.next_offset == end else f"archived up to {head}, not {end}")
