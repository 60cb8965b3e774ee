"""The discovery for the protocol source: streams as the broker lists them, for brokers whose disk cannot be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver_pool import ArchiverPool
from coldstream.agent.disk.pins import StreamPins
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.incarnations import Anchor, find_incarnation
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.recording.plan import FOREVER, RecordingPlan
from coldstream.agent.recording.recorder import LOST, StreamRecorder
from coldstream.agent.recording.spool import SegmentSpool
from coldstream.agent.state_directory import StateDirectory
from coldstream.agent.stream_file import RememberedStream
from coldstream.errors import BrokerRefusedError, ColdstreamError, InvalidNameError, NotFoundError, UnavailableError
from coldstream.live.connection import LiveConnection
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.retry import Backoff
from coldstream.units import MAX_OFFSET, Offset

log = logging.getLogger(__name__)

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 60.0
TURN_S = 1.0


class ProtocolDiscovery:
    """Records streams and has them archived: those of the options, and those that the management API lists.

    What an earlier run left in the spools is archived as well, also of incarnations that the broker has no more.
    """

    def __init__(
        self,
        options: AgentOptions,
        archive: ArchiveClient,
        broker: BrokerProver,
        listing: StreamListing,
        metrics: AgentMetrics,
        *,
        plan: RecordingPlan = FOREVER,
    ) -> None:
        self._options = options
        self._plan = plan
        self._has_listed = False
        self._state = StateDirectory(options.state)
        self._archive = archive
        self._broker = broker
        self._listing = listing
        self._metrics = metrics
        self._problem: str | None = None
        self._refused: dict[tuple[str, str], str] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._leftovers: list[StreamId] = []

    @property
    def problem(self) -> str | None:
        """Why the streams cannot be listed; None if they can."""
        return self._problem

    @property
    def refused(self) -> Mapping[tuple[str, str], str]:
        """The streams, by vhost and name, that the broker refuses to deliver, and why."""
        return self._refused

    @property
    def followed(self) -> frozenset[tuple[str, str]] | None:
        """The streams, by vhost and name, that were found so far; None before the first list."""
        return frozenset(self._tasks) if self._has_listed else None

    async def run(self, archivers: ArchiverPool) -> None:
        """Look for streams every `scan_s`, and follow each in a task of its own."""
        loop = asyncio.get_running_loop()
        scan_at = 0.0
        try:
            # Before any recorder runs: it would recover a spool that this is still about to recover.
            await self._resume(archivers)
            while True:
                archivers.turn()
                if loop.time() >= scan_at:
                    await self._find_streams(archivers)
                    scan_at = loop.time() + self._options.scan_s
                await asyncio.sleep(min(TURN_S, self._options.scan_s))
        finally:
            for task in self._tasks.values():
                task.cancel()
            # Recorders have to end before the state directory is let go, for another agent may take it at once.
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _resume(self, archivers: ArchiverPool) -> None:
        """Have what an earlier run left archived."""
        for path in await asyncio.to_thread(lambda: sorted(self._state.stream_files.glob("*.json"))):
            # In each round: with many spools to recover, /healthz would otherwise take the agent for stalled.
            archivers.turn()
            incarnation = Incarnation(path.stem)
            stream = await asyncio.to_thread(self._recover, incarnation)
            if stream is not None and archivers.start(incarnation, self._pins(incarnation), is_backfill=True):
                self._leftovers.append(stream)

    async def _find_streams(self, archivers: ArchiverPool) -> None:
        names = dict.fromkeys(self._options.streams)
        try:
            names |= dict.fromkeys((stream.vhost, stream.name) for stream in await self._listing.known())
            self._problem = None
            self._has_listed = True
        except ColdstreamError as err:
            self._problem = str(err)
        else:
            # Nothing follows a stream that is gone, so nothing else would tell its archivers to end. That it is gone is
            # known only from a list that came: a management API that is down lists nothing.
            for stream in self._leftovers:
                if (stream.vhost, stream.name) not in names:
                    archivers.end_stream(stream.vhost, stream.name)
            # Once is enough: what the list does have is followed from now on, by a task that ends it.
            self._leftovers = []
        for vhost, name in names:
            if (vhost, name) not in self._tasks and self._options.rules.takes(vhost, name):
                self._tasks[vhost, name] = asyncio.create_task(
                    self._follow(archivers, vhost, name), name=f"discovery of {name}"
                )

    async def _follow(self, archivers: ArchiverPool, vhost: str, name: str) -> None:
        """Record one incarnation of a stream after another. A failure is logged, and tried again later."""
        backoff = Backoff(FIRST_DELAY_S, MAX_DELAY_S)
        failures = _FailureLog(self._metrics, f"{name!r} in vhost {vhost!r}")
        while True:
            max_pause_s = MAX_DELAY_S
            try:
                current = await find_incarnation(
                    self._archive, self._broker, vhost, name, state=self._state, start=self._plan.start(vhost, name)
                )
                self._refused.pop((vhost, name), None)
                if current is None:
                    self._plan.watch.waits(vhost, name, "it has no message to begin with yet")
                else:
                    stream, anchor = current
                    # The broker has one incarnation at a time, so what is here of the others gets nothing more.
                    archivers.end_stream(vhost, name, but=stream.incarnation)
                    backoff.reset()
                    if await self._record(archivers, stream, anchor):
                        return  # the plan's end; the entry in `_tasks` stays, so that no other task begins
            except InvalidNameError as err:
                log.error("%r in vhost %r cannot be archived: %s", name, vhost, err)  # noqa: TRY400  no bug
                # The entry in `_tasks` stays: another task would find the same name, and log the same error, at each
                # scan.
                return
            except NotFoundError:  # not declared yet, or deleted
                self._refused.pop((vhost, name), None)
                self._plan.watch.waits(vhost, name, "the broker has no such stream")
                archivers.end_stream(vhost, name)
                if (vhost, name) not in self._options.streams:
                    # The management API lists it again when it is declared again, and that starts another task.
                    del self._tasks[vhost, name]
                    return
                # The options name it, so it may be declared at any moment, and must not wait a minute to be found.
                max_pause_s = self._options.scan_s
            except Exception as err:  # noqa: BLE001  not even a bug may end it for good
                if isinstance(err, BrokerRefusedError):
                    self._refused[vhost, name] = str(err)
                failures.report(err)
            await asyncio.sleep(min(backoff.next_delay_s(), max_pause_s))

    async def _record(self, archivers: ArchiverPool, stream: StreamId, anchor: Anchor) -> bool:
        """Record an incarnation until it ends, or until it has to be found out again which one the broker has.

        Return whether it has come to the plan's end.

        Its archiver goes on after that, until `end_stream`: another look may find the same incarnation.
        """
        incarnation = stream.incarnation
        # Before the archiver starts, which reads the file once: without the names it would begin to search for them.
        await asyncio.to_thread(self._remember, stream, is_archived_now=incarnation in archivers)
        archiver = archivers.start(incarnation, self._pins(incarnation), is_backfill=False)
        if archiver is None:
            return False
        watch = self._plan.watch
        if anchor.is_midway:
            await watch.begins(stream, anchor.next_offset)
        await watch.records(stream, anchor.next_offset)
        if archiver.disk.pins.is_ended:
            # The archiver removes the pins when it has finished, and would remove what is recorded meanwhile.
            raise UnavailableError(f"{stream} seemed to be deleted, and is still being archived to its end")

        def on_lost(first_offset: Offset, next_offset: Offset, reason: str) -> None:
            log.warning("%s: offsets %d to %d were %s", stream, first_offset, next_offset - 1, reason)
            archiver.losses.note(first_offset, next_offset)
            watch.lost(stream, first_offset, next_offset, reason)
            archiver.wake()

        if anchor.is_first:
            # Announced at once, before any segment, so that readers of an earlier incarnation stop waiting for more.
            seen_to = anchor.next_offset if anchor.missed_from is None else anchor.missed_from
            archiver.losses.note(Offset(0), seen_to, unseen=True)
            if anchor.missed_from is not None:
                archiver.losses.note(anchor.missed_from, anchor.next_offset)
                watch.lost(stream, anchor.missed_from, anchor.next_offset, LOST)
        recorder = StreamRecorder(
            lambda: LiveConnection(self._options.broker, stream.vhost, name="coldstream agent"),
            stream,
            archiver.disk.pins.directory,
            anchor,
            on_closed=lambda _: archiver.wake(),
            on_lost=on_lost,
            on_failure=_FailureLog(self._metrics, str(stream), stream).report,
            segment_bytes=self._options.segment_bytes,
            every_ms=self._options.cut_every_ms,
            max_spool_bytes=self._options.max_spool_bytes,
            end=self._plan.end,
            on_recorded=lambda header: watch.recorded(stream, header),
        )
        await recorder.run()
        log.info("%s is not recorded any more", stream)
        if recorder.has_ended:
            watch.ended(stream, recorder.next_offset)
        return recorder.has_ended

    def _pins(self, incarnation: Incarnation) -> StreamPins:
        return StreamPins(self._state.pins_of(incarnation), None)

    def _remember(self, stream: StreamId, *, is_archived_now: bool) -> None:
        """Write down which stream an incarnation is of, and that all of it is committed, as the broker delivers it.

        Raises UnavailableError if the incarnation is known as another stream's, one with names that are encoded alike
        and that began in the same millisecond.
        """
        file = self._state.stream_file(stream.incarnation)
        before = file.load()
        if before.stream not in {None, stream}:
            raise UnavailableError(f"{stream} cannot be told from {before.stream}: both are {stream.incarnation}")
        if not is_archived_now:  # else the file is its archiver's, which has said all of this, and may be writing to it
            file.save(RememberedStream(stream, Offset(MAX_OFFSET), before.lost), durably=True)

    def _recover(self, incarnation: Incarnation) -> StreamId | None:
        """Close the segment that an incarnation has open; return its stream, None if that is not known."""
        stream = self._state.stream_file(incarnation).load().stream
        if stream is not None:
            try:
                SegmentSpool(self._state.pins_of(incarnation)).recover()
            except OSError as err:
                log.warning("%s: the open segment cannot be closed, and is not archived now: %s", stream, err)
        return stream


class _FailureLog:
    """Counts each failure of a stream, and logs it unless it repeats the one before."""

    def __init__(self, metrics: AgentMetrics, subject: str, stream: StreamId | None = None) -> None:
        self._metrics = metrics
        self._subject = subject
        self._stream = stream
        self._last = ""

    def report(self, err: Exception) -> None:
        if str(err) != self._last:
            is_expected = isinstance(err, ColdstreamError | OSError)
            log.warning("%s: %s", self._subject, err, exc_info=None if is_expected else err)
        self._last = str(err)
        self._metrics.failed(err, self._stream)
