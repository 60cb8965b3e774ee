"""Ask a broker what it has of a stream, by the stream protocol: its first offset, and the last that is committed."""

from __future__ import annotations

import asyncio

from coldstream.browse.spans import BrokerOffsets
from coldstream.errors import ColdstreamError
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.manifest.spec import FIRST
from coldstream.units import Offset

TIMEOUT_S = 5.0
"""For all questions together."""


def probe_broker(address: BrokerAddress, vhost: str, name: str, *, timeout_s: float = TIMEOUT_S) -> BrokerOffsets:
    """Return what the broker has; why not, if it does not answer. Blocks, so that a server calls it in a thread.

    The end is that of the node that is connected to. Cost: one connection, and two chunks.
    """
    try:
        return asyncio.run(_probe(address, vhost, name, timeout_s))
    except TimeoutError:
        return BrokerOffsets(problem=f"{address}: no answer within {timeout_s:g} s")
    except ColdstreamError as err:
        return BrokerOffsets(problem=str(err))


async def _probe(address: BrokerAddress, vhost: str, name: str, timeout_s: float) -> BrokerOffsets:
    async with asyncio.timeout(timeout_s), LiveConnection(address, vhost, name="coldstream console") as connection:
        # The end first: without one the stream is empty, and its first chunk would be waited for.
        end = await connection.end(name)
        if not end:
            return BrokerOffsets()
        first = await connection.probe(name, FIRST, timeout_s=timeout_s)
        return BrokerOffsets(None if first is None else Offset(first.header.chunk_id), end)
