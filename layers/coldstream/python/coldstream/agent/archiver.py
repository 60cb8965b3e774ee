"""The archiver of one stream: three tasks that pin, prove and deliver it, until it is gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from coldstream.agent.disk.disk_access import DiskAccess
from coldstream.agent.disk.stream_disk import DiskLook, StreamDisk
from coldstream.agent.failure_log import FailureLog
from coldstream.agent.losses import UNSEEN, Losses
from coldstream.agent.monitor.snapshot import snapshot
from coldstream.agent.monitor.status import StreamStatus
from coldstream.agent.pinning import StreamPinning, wait_for_event
from coldstream.agent.proof.directory import PinnedDirectory
from coldstream.agent.proof.history import HistoryCheck
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.proof.management import BrokerStream
from coldstream.agent.proof.proving import StreamProving
from coldstream.agent.proof.search import NameSearch
from coldstream.agent.replica_turns import ReplicaTurns
from coldstream.agent.services import Services
from coldstream.agent.slice_delivery import SliceDelivery
from coldstream.agent.stream_delivery import StreamDelivery
from coldstream.agent.stream_file import StreamFile
from coldstream.agent.stream_log import StreamLog
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.agent.stream_state import StreamState
from coldstream.errors import BrokerRefusedError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.retry import Backoff
from coldstream.units import Offset

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 60.0
"""Of the pauses after a failure."""

LOOK_AGAIN_S = 0.05
MAX_LOOK_AGAIN_S = 1.0

LOOK_BACK_SCANS = 40
"""So many scans, 20 minutes unless set otherwise, the agent looks what the archive gave up as damaged."""
"""Of the pauses after a file was gone, which is usual; a pause longer than the greatest makes it a failure."""


@dataclass(frozen=True, slots=True)
class _ShownOf:
    """What the status of a quiet stream follows from; whatever else it shows does not change while it is quiet."""

    look: DiskLook
    known: BrokerStream | None
    complete_from: Offset


class StreamArchiver:
    """Archives one incarnation, until the broker has deleted it and nothing of it is left here.

    `is_backfill` says that it had rolled segments when the agent came.
    """

    def __init__(
        self, incarnation: Incarnation, disk: StreamDisk, file: StreamFile, services: Services, *, is_backfill: bool
    ) -> None:
        access = DiskAccess(disk)
        archive, broker, metrics = services.archive, services.broker, services.metrics
        self.incarnation = incarnation
        self.disk = disk
        self.identity = StreamIdentity(incarnation, file, broker, access)
        self.progress = ArchivingProgress(self.identity, access)
        self.losses = Losses(self.identity, archive, metrics, broker, services.host, unseen=services.unseen or UNSEEN)
        self.failures = FailureLog(self.identity, archive, metrics)
        self.log = StreamLog(self.progress, archive, 0 if services.quiet is None else services.quiet.min_bytes)
        self._services = services
        self._shown: tuple[_ShownOf, StreamStatus] | None = None
        self._search = NameSearch(
            PinnedDirectory(self.identity, access), broker, services.naming, services.rules, services.namesakes
        )
        self._history = HistoryCheck(self.identity, archive, access, metrics)
        self._pinning = StreamPinning(self.progress, self.losses, self.failures, services.scan_s)
        self._proving = StreamProving(self.progress, self._search, services.rules, metrics)
        self._delivery = StreamDelivery(
            self.progress,
            self._proving,
            self._history,
            self.losses,
            SliceDelivery(archive, services.slots, metrics, services.every_ms, services.quiet),
            turns=ReplicaTurns(archive, broker, services.every_ms) if services.takes_turns else None,
            is_backfill=is_backfill,
            look_back_s=LOOK_BACK_SCANS * services.scan_s,
        )

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        return self.identity.stream

    @property
    def state(self) -> StreamState:
        """What is being done with the stream."""
        return self.progress.state

    @property
    def last_failure(self) -> str | None:
        """What failed last, or is missing; None when all goes well."""
        return self.failures.text or self.losses.failure or self._search.why or self._history.why

    def wake(self) -> None:
        """Look at the broker's directory at once."""
        self._pinning.wake()

    def wake_if_changed(self) -> None:
        """Wake it if the files of a quiet stream are not as they were. Cost: two stats for a quiet one."""
        if not self.progress.check_quiet():
            self.wake()

    async def run(self) -> None:
        """Archive until the stream is gone. Whatever fails is reported and tried again: nothing here gives up."""
        pinning = asyncio.create_task(self._pinning.run(), name=f"pins of {self.incarnation}")
        proving = asyncio.create_task(self._proving.run(), name=f"proofs of {self.incarnation}")
        try:
            await self._deliver()
            # Cancel the proving, which never ends by itself; the pinning ends once the state is final.
            proving.cancel()
            # The pins go only when nobody pins any more: a look that is under way would link the files once more.
            self.wake()
            await pinning
            await asyncio.to_thread(self.disk.pins.release_all)
            # A file that cannot be removed does no harm: the next run ends the stream again, and tries once more.
            with suppress(OSError):
                self.identity.forget()
            # An excluded stream stays a namesake: its directory is still there. It would otherwise count as one that
            # nobody has looked at, and no stream whose names are encoded alike could ever be named.
            if self.state is StreamState.DELETED:
                self._services.namesakes.leave(self.incarnation)
        finally:
            pinning.cancel()
            proving.cancel()
            # Wait as well: whoever waits for `run` takes all three tasks for ended.
            await asyncio.gather(pinning, proving, return_exceptions=True)

    async def give_up_oldest(self, why: str) -> None:
        """Release the oldest pin although it is not archived, as `StreamPinning.give_up_oldest` does."""
        await self._pinning.give_up_oldest(why)

    async def status(self, known: BrokerStream | None) -> StreamStatus:
        """Take a snapshot; `known` is what the broker says of the stream's retention.

        Of a quiet stream it is the last one, for as long as nothing has changed.
        """
        look = self.progress.quiet_look if self.progress.is_quiet else None
        shown_of = None if look is None else _ShownOf(look, known, self.losses.complete_from)
        if self._shown is not None and self._shown[0] == shown_of:
            return self._shown[1]
        status = await self.progress.disk.call(
            snapshot, self.disk, self.progress, self.losses, known, last_failure=self.last_failure
        )
        # By the look from before: what has changed since makes another one.
        self._shown = None if shown_of is None else (shown_of, status)
        return status

    async def _deliver(self) -> None:
        failure_pauses = Backoff(FIRST_DELAY_S, MAX_DELAY_S)
        gone_pauses = Backoff(LOOK_AGAIN_S, 2 * MAX_LOOK_AGAIN_S)
        while not self.state.is_final:
            # Cleared before the step: what is pinned while the step is under way makes another one.
            self.progress.changed.clear()
            was_quiet, self.progress.is_quiet = self.progress.is_quiet, False
            self.progress.quiet_look = None  # of before whatever made this step
            try:
                goes_on = await self._step()
            except FileNotFoundError as err:  # a pin was released, or the broker truncated: look again
                pause_s = gone_pauses.next_delay_s()
                if pause_s > MAX_LOOK_AGAIN_S:
                    self.failures.report(err)
                # The log lists the file until the next look: without one, the next step would fail the same way.
                self.wake()
                await asyncio.sleep(pause_s)
                continue
            except Exception as err:  # noqa: BLE001  one stream's trouble, even a bug, must not stop the others
                self.failures.report(err)
                if was_quiet:
                    self.wake()
                if isinstance(err, BrokerRefusedError):
                    self.progress.state = StreamState.REFUSED
                await asyncio.sleep(failure_pauses.next_delay_s())
                continue
            failure_pauses.reset()
            gone_pauses.reset()
            self.failures.clear()
            # What is known to fail is tried again by time, whatever the files do.
            self.progress.is_quiet = self.progress.is_quiet and self.last_failure is None
            if was_quiet and not self.progress.is_quiet:
                self.wake()  # the pinning may be in a long pause, and from now on has to look at each scan
            if not goes_on and not self.state.is_final:
                self._delivery.is_backfill = False
                await wait_for_event(self.progress.changed, self._pause_s())

    async def _step(self) -> bool:
        """Do one thing; return whether there may be more to do at once."""
        if not self.disk.segments:
            return await self._await_first_segment()
        if not await self._proving.is_taken():
            return False
        if not self.progress.has_begun and not await self._delivery.begin():
            return True
        await self.losses.report_if_possible()
        return await self._delivery.archive_next()

    async def _await_first_segment(self) -> bool:
        """Look for a first segment; end when there is none and none will come."""
        await self.progress.look()
        if self.disk.segments:
            return True
        self.progress.state = StreamState.FOLLOWING
        # Asked right after the look. During the await below a segment may come and go again with the whole directory;
        # asked then, the stream would end without anybody having looked for it.
        is_live = self.progress.is_live
        await self.losses.report()
        if not is_live and not self.losses.are_suspected:
            self.progress.state = StreamState.DELETED
        return False

    def _pause_s(self) -> float:
        """Return how long to wait for something new. With a max-lag, time spans end without an event."""
        if self.stream is None:
            return self._search.pause_s(self._services.scan_s)
        if self.progress.is_quiet:
            return self._delivery.look_back_in_s
        every_ms = self._services.every_ms
        # Half a span: with a whole one, the end of a span could be noticed almost a span late.
        return self._services.scan_s if every_ms is None else min(self._services.scan_s, every_ms / 2000)
