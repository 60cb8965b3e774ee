"""The partitions of a super stream without a map, as the broker has them."""

from __future__ import annotations

import asyncio
import logging

from coldstream.consumer.items import BatchItems
from coldstream.consumer.makers import FollowerMaker
from coldstream.consumer.retrylog import RetryLog
from coldstream.consumer.shard_maps import ShardMapSource
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.manifest.shard_map import MAP_EVERY_S

log = logging.getLogger(__name__)


async def super_stream_partitions(maker: FollowerMaker, super_stream: str) -> tuple[str, ...]:
    """Ask the broker for the partitions until it answers. Raises StreamNotFoundError, AccessDeniedError."""
    broker = maker.broker(super_stream)
    retry_log = RetryLog(f"super stream {super_stream!r} at the broker")
    try:
        while True:
            try:
                partitions = await broker.partitions(super_stream)
            except UnavailableError as err:
                if not err.retryable:
                    raise
                await broker.renew()
                await retry_log.pause(err)
            else:
                retry_log.recovered()
                return partitions
    finally:
        # A super stream stores no offsets itself, so its connection must not be found under its name.
        maker.drop_broker(super_stream)


async def tell_of_map(maps: ShardMapSource, items: BatchItems) -> None:
    """Ask for the map that could not be asked for when reading began, until there is an answer, and tell of it.

    Reading does not turn to the map: what was given out came in no order of keys, and not from all versions.
    """
    while True:
        await asyncio.sleep(MAP_EVERY_S)
        try:
            found = await maps.ask()
        except ColdstreamError:
            continue
        if found is not None:
            left_out = sorted({one.name for one in found.partitions} - items.streams.keys())
            log.warning(
                "%s has a map, and is read without it: as it arrives, %s, and not what it grows by; read it anew",
                found,
                f"without {', '.join(left_out)}" if left_out else "all partitions",
            )
        return
