"""What a gateway asks the archive for its clients: bounds, where to begin, headers, chunks, and stored offsets."""

from __future__ import annotations

import asyncio
import hashlib

from coldstream.errors import ColdstreamError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.manifest.spec import FIRST
from coldstream.units import Offset
from tests.faults.fault_acts import Outcome
from tests.faults.faulty_world import ORDERS, FaultyWorld

_REFERENCE = "a-reference"


def read_as_gateway(world: FaultyWorld) -> Outcome:
    """Read a stream from its beginning to its end, and note how far that is."""
    world.entered.add("gateway")
    try:
        shown = asyncio.run(_read(world))
    except ColdstreamError as err:
        return Outcome(b"", f"{type(err).__name__}: {err}")
    except Exception as err:  # noqa: BLE001  this is what must not happen, and the judge says so
        return Outcome(b"", f"{type(err).__name__}: {err}", is_typed=False)
    return Outcome(shown)


async def _read(world: FaultyWorld) -> bytes:
    figures = GatewayFigures()
    history = GatewayHistory(world.table, world.objects, figures=figures)
    found = hashlib.sha256()
    try:
        assert await history.streams(ORDERS.vhost) == (ORDERS.name,)
        bounds = await history.bounds(ORDERS.vhost, ORDERS.name)
        start = await history.attach(ORDERS.vhost, ORDERS.name, FIRST)
        assert bounds is not None
        assert start == bounds.first_offset == 0
        header = await history.header_at(ORDERS.vhost, ORDERS.name, Offset(bounds.tail - 1))
        assert header is not None
        async with history.read(ORDERS.vhost, ORDERS.name, ORDERS.incarnation, start, bounds.tail) as reading:
            async for chunk in reading:
                found.update(b"%d " % chunk.header.chunk_id)
                found.update(chunk.data)
                last = chunk.header
        assert last == header.header
        history.note_offset(ORDERS.vhost, ORDERS.name, _REFERENCE, last.chunk_id)
        await history.flush()
        noted = await history.stored_offset(ORDERS.vhost, ORDERS.name, _REFERENCE)
        if noted is None:  # without the permission to write it, it is given up, counted and logged
            assert figures.archive_failures_total["denied"]
        else:
            assert int(noted) == last.chunk_id
    finally:
        await history.close()
    return found.hexdigest().encode()


def find_noted(world: FaultyWorld) -> Outcome:
    """Have another gateway find the offset that was noted, or none if the flush was given up."""

    async def find() -> Offset | None:
        history = GatewayHistory(world.table, world.objects)
        try:
            return await history.stored_offset(ORDERS.vhost, ORDERS.name, _REFERENCE)
        finally:
            await history.close()

    found = asyncio.run(find())
    return Outcome(b"", None if found is None or 0 < found < world.staged[0].first_offset else f"noted {found}")
