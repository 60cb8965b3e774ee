"""The protocol source: streams as a consumer gets them, for brokers whose disk cannot be seen."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from coldstream.agent.agent import Agent
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.pins import StreamPins
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.incarnations import Anchor, find_life
from coldstream.agent.proof.naming import Naming
from coldstream.agent.recording.protocol import ProtocolSource
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.agent.stream_file import RememberedStream
from coldstream.errors import BrokerRefusedError, ColdstreamError, InvalidNameError, NotFoundError, UnavailableError
from coldstream.live.connection import LiveConnection
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import MAX_OFFSET, Offset

log = logging.getLogger(__name__)

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
TURN_S = 1.0


class ProtocolFollower:
    """Has streams archived that it consumes: those of the options, and those that the management API lists.

    What an earlier run left is archived as well, also of lives that the broker has no more.
    """

    problem: str | None = None

    def __init__(self, archive: ArchiveClient, broker: BrokerProver, naming: Naming) -> None:
        self._archive = archive
        self._broker = broker
        self._naming = naming
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._left: list[StreamId] = []

    async def run(self, agent: Agent) -> None:
        """Look for streams every `scan_s`, and follow each in a task of its own."""
        loop = asyncio.get_running_loop()
        scan_at = 0.0
        try:
            await self._take_up(agent)
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

    async def _take_up(self, agent: Agent) -> None:
        """Have archived what an earlier run left."""
        for path in await asyncio.to_thread(lambda: sorted(agent.memories.glob("*.json"))):
            agent.turn()
            life = Incarnation(path.stem)
            stream = await asyncio.to_thread(_recovered, agent, life)
            if stream is not None and agent.archive(life, _pins(agent, life), is_backfill=True) is not None:
                self._left.append(stream)

    async def _find(self, agent: Agent) -> None:
        wanted = dict.fromkeys(agent.options.streams)
        try:
            wanted |= dict.fromkeys((stream.vhost, stream.name) for stream in await self._naming.known())
            self.problem = None
        except ColdstreamError as err:
            self.problem = str(err)
        else:
            for stream in self._left:  # nobody looks for these
                if (stream.vhost, stream.name) not in wanted:
                    _end(agent, stream.vhost, stream.name)
            self._left = []
        for vhost, name in wanted:
            if (vhost, name) not in self._tasks and agent.options.rules.take(StreamId(vhost, name, Incarnation("_"))):
                self._tasks[vhost, name] = asyncio.create_task(
                    self._follow(agent, vhost, name), name=f"source of {name}"
                )

    async def _follow(self, agent: Agent, vhost: str, name: str) -> None:
        """Follow one life of a stream after another. What fails is told, and tried again later."""
        delay_s = FIRST_DELAY_S
        tell = _teller(agent, f"{name!r} in vhost {vhost!r}")
        while True:
            try:
                found = await find_life(
                    self._archive, self._broker, vhost, name, pins=agent.pins, memories=agent.memories
                )
                agent.refused.pop((vhost, name), None)
                if found is not None:
                    stream, anchor = found
                    _end(agent, vhost, name, but=stream.incarnation)
                    delay_s = FIRST_DELAY_S
                    await self._follow_life(agent, stream, anchor)
            except InvalidNameError as err:
                log.error("%r in vhost %r cannot be archived: %s", name, vhost, err)  # noqa: TRY400  no bug
                return
            except NotFoundError:  # not declared yet, or deleted
                agent.refused.pop((vhost, name), None)
                _end(agent, vhost, name)
                if (vhost, name) not in agent.options.streams:
                    del self._tasks[vhost, name]  # it is listed again when it is declared again
                    return
                delay_s = min(delay_s, agent.options.scan_s)
            except Exception as err:  # noqa: BLE001  not even a bug may end it for good
                if isinstance(err, BrokerRefusedError):
                    agent.refused[vhost, name] = str(err)
                tell(err)
            await asyncio.sleep(random.uniform(0.5, 1) * delay_s)  # noqa: S311  jitter, not a secret
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    async def _follow_life(self, agent: Agent, stream: StreamId, anchor: Anchor) -> None:
        """Follow a life to its end, or until it has to be looked whether it has come. Archived is it until `_end`."""
        life = stream.incarnation
        await asyncio.to_thread(_remember, agent, stream)
        archiver = agent.archive(life, _pins(agent, life), is_backfill=False)
        if archiver is None:
            return
        if archiver.disk.pins.is_ended:
            raise UnavailableError(f"{stream} was deleted, it seemed, and is still being archived to its end")

        def lost(first_offset: Offset, next_offset: Offset, reason: str) -> None:
            log.warning("%s: offsets %d to %d were %s", stream, first_offset, next_offset - 1, reason)
            archiver.losses.note(first_offset, next_offset)
            archiver.wake()

        if anchor.is_first:
            # It is known at once so that there is this life: who reads an earlier one waits for nothing any more.
            seen_to = anchor.next_offset if anchor.missed_from is None else anchor.missed_from
            archiver.losses.note(Offset(0), seen_to, unseen=True)
            if anchor.missed_from is not None:
                archiver.losses.note(anchor.missed_from, anchor.next_offset)
        source = ProtocolSource(
            lambda: LiveConnection(agent.options.broker, stream.vhost, name="coldstream agent"),
            stream,
            archiver.disk.pins.directory,
            anchor,
            on_closed=lambda _: archiver.wake(),
            on_lost=lost,
            on_failure=_teller(agent, str(stream), stream),
            segment_bytes=agent.options.segment_bytes,
            every_ms=agent.options.every_ms,
            max_spool_bytes=agent.options.max_spool_bytes,
        )
        await source.run()
        log.info("%s is not followed any more", stream)


def _pins(agent: Agent, life: Incarnation) -> StreamPins:
    return StreamPins(agent.pins / life, None)


def _end(agent: Agent, vhost: str, name: str, *, but: Incarnation | None = None) -> None:
    """Have all lives of a stream but one end, each once what is here of it is archived."""
    for life, archiver in agent.archivers.items():
        stream = archiver.stream
        if life != but and stream is not None and (stream.vhost, stream.name) == (vhost, name):
            archiver.disk.pins.is_ended = True
            archiver.wake()


def _remember(agent: Agent, stream: StreamId) -> None:
    """Write down which stream a life is of: what is delivered is committed, and who delivers knows the names.

    Raises UnavailableError where the life is another stream's, written alike and begun in the same moment.
    """
    file = agent.memory(stream.incarnation)
    before = file.load()
    if before.stream not in {None, stream}:
        raise UnavailableError(f"{stream} cannot be told from {before.stream}: both are {stream.incarnation}")
    if stream.incarnation not in agent.archivers:  # else it is its archiver's
        file.save(RememberedStream(stream, Offset(MAX_OFFSET), before.lost), durably=True)


def _recovered(agent: Agent, life: Incarnation) -> StreamId | None:
    """Close what is open of a life; return which stream it is of, None where that is not known."""
    stream = agent.memory(life).load().stream
    if stream is not None:
        try:
            SegmentSpool(agent.pins / life).recover()
        except OSError as err:
            log.warning("%s: what was open is not closed: %s", stream, err)
    return stream


def _teller(agent: Agent, what: str, stream: StreamId | None = None) -> Callable[[Exception], None]:
    """Return what counts a failure, and logs it unless it is the last one once more."""
    last = ""

    def tell(err: Exception) -> None:
        nonlocal last
        if str(err) != last:
            expected = isinstance(err, ColdstreamError | OSError)
            log.warning("%s: %s", what, err, exc_info=None if expected else err)
        last = str(err)
        agent.metrics.failed(err, stream)

    return tell
