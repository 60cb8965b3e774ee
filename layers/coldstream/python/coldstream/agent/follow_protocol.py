"""The protocol source: streams as a consumer gets them, for brokers whose disk cannot be seen."""

from __future__ import annotations

import asyncio
import logging
import random

from coldstream.agent.agent import Agent
from coldstream.agent.archive import Archive
from coldstream.agent.lives import find_life
from coldstream.agent.memory import StreamMemory
from coldstream.agent.naming import Naming
from coldstream.agent.pins import StreamPins
from coldstream.agent.proof import Broker
from coldstream.agent.protocol import ProtocolSource
from coldstream.errors import ColdstreamError, InvalidNameError, NotFoundError
from coldstream.live.connection import LiveConnection
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import MAX_OFFSET, Offset

log = logging.getLogger(__name__)

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
TURN_S = 1.0


class ProtocolFollower:
    """Has streams archived that it consumes: those of the options, and those that the management API lists."""

    problem: str | None = None

    def __init__(self, archive: Archive, broker: Broker, naming: Naming) -> None:
        self._archive = archive
        self._broker = broker
        self._naming = naming
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self, agent: Agent) -> None:
        """Look for streams every `scan_s`, and follow each in a task of its own."""
        loop = asyncio.get_running_loop()
        scan_at = 0.0
        try:
            while True:
                agent.turn()
                if loop.time() >= scan_at:
                    await self._find(agent)
                    scan_at = loop.time() + agent.options.scan_s
                await asyncio.sleep(min(TURN_S, agent.options.scan_s))
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _find(self, agent: Agent) -> None:
        try:
            known = [(stream.vhost, stream.name) for stream in await self._naming.known()]
            self.problem = None
        except ColdstreamError as err:
            self.problem = str(err)
            known = []
        for vhost, name in dict.fromkeys((*agent.options.streams, *known)):
            if (vhost, name) not in self._tasks and agent.options.rules.take(StreamId(vhost, name, Incarnation("_"))):
                self._tasks[vhost, name] = asyncio.create_task(
                    self._follow(agent, vhost, name), name=f"source of {name}"
                )

    async def _follow(self, agent: Agent, vhost: str, name: str) -> None:
        """Follow one life of a stream after another. What fails is told, and tried again later."""
        delay_s = FIRST_DELAY_S
        while True:
            try:
                found = await find_life(self._archive, self._broker, agent.pins, vhost, name)
                if found is not None:
                    delay_s = FIRST_DELAY_S
                    await self._follow_life(agent, *found)
            except InvalidNameError as err:
                log.error("%r in vhost %r cannot be archived: %s", name, vhost, err)  # noqa: TRY400  no bug
                return
            except NotFoundError:  # not declared yet, or deleted
                delay_s = min(delay_s, agent.options.scan_s)
            except (ColdstreamError, OSError) as err:
                log.warning("%r in vhost %r: %s", name, vhost, err)
                agent.metrics.failed(err)
            await asyncio.sleep(random.uniform(0.5, 1) * delay_s)  # noqa: S311  jitter, not a secret
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    async def _follow_life(self, agent: Agent, stream: StreamId, start: Offset) -> None:
        # What is delivered is committed, and who delivers knows the names.
        memory = StreamMemory(stream, Offset(MAX_OFFSET))
        await asyncio.to_thread(agent.memory(stream.incarnation).save, memory)
        pins = StreamPins(agent.pins / stream.incarnation, None)
        archiver = agent.archive(stream.incarnation, pins, is_backfill=False)
        if archiver is None:
            return

        def lost(first_offset: Offset, next_offset: Offset, reason: str) -> None:
            # The archiver finds the hole by itself, and tells of it.
            log.error("%s: offsets %d to %d are lost: %s", stream, first_offset, next_offset - 1, reason)

        source = ProtocolSource(
            lambda: LiveConnection(agent.options.broker, stream.vhost, name="coldstream agent"),
            stream,
            pins.directory,
            start,
            on_closed=lambda _: archiver.wake(),
            on_lost=lost,
            on_failure=lambda err: agent.metrics.failed(err, stream),
            segment_bytes=agent.options.segment_bytes,
            every_ms=agent.options.every_ms,
            max_spool_bytes=agent.options.max_spool_bytes,
        )
        await source.run()
        log.info("%s has ended", stream)
        pins.is_ended = True
        archiver.wake()
