"""The agent: a discovery that finds streams, an archiver for each, and what has to be done now and then beside them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Protocol

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.archiver_pool import WAKING_TURNS, ArchiverPool
from coldstream.agent.disk_guard import DiskGuard
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.problems import AgentProblems
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.namesakes import Namesakes
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.recovery_log import RecoveryLog
from coldstream.agent.services import Services
from coldstream.agent.state_directory import StateDirectory
from coldstream.agent.status_reporter import StatusReporter
from coldstream.agent.upload_slots import UploadSlots
from coldstream.errors import ColdstreamError, LoginRefusedError

GUARD_S = 2.0
SHOW_S = 5.0
LOGIN_S = 10.0


class StreamDiscovery(Protocol):
    """Finds streams as they come and go, and has an archiver started for each."""

    @property
    def problem(self) -> str | None:
        """What keeps it from seeing everything at once; None if nothing does."""
        ...

    @property
    def refused(self) -> Mapping[tuple[str, str], str]:
        """The streams, by vhost and name, that it could not have archived because the broker refuses them; and why."""
        ...

    async def run(self, archivers: ArchiverPool) -> None:
        """Run until cancelled, and call `archivers.turn` every second or so.

        Raises InvalidSettingError when it cannot begin.
        """
        ...


class Agent:
    """Archives the streams that a discovery finds and the rules take."""

    def __init__(
        self,
        options: AgentOptions,
        archive: ArchiveClient,
        broker: BrokerProver,
        listing: StreamListing,
        metrics: AgentMetrics,
    ) -> None:
        self.options = options
        self.metrics = metrics
        self.state = StateDirectory(options.state)
        self._archive = archive
        self._broker = broker
        host = socket.gethostname()
        services = Services(
            archive=archive,
            broker=broker,
            naming=listing,
            slots=UploadSlots(options.uploads),
            rules=options.rules,
            metrics=metrics,
            scan_s=options.scan_s,
            every_ms=options.cut_every_ms,
            host=host,
            unseen=options.unseen,
            # What is recorded by the protocol is cut by each agent for itself, and there is one for all nodes, usually.
            takes_turns=options.source is SegmentSource.DISK,
            namesakes=Namesakes(options.data),
            quiet=options.quiet,
        )
        self.archivers = ArchiverPool(self.state, services)
        self.disk_guard = DiskGuard(options.state, options.release_below_bytes, self.archivers, host)
        self._problems = AgentProblems()
        self._is_login_refused = False
        every_ms = options.cut_every_ms
        self.recovery_log: RecoveryLog | None = None
        if options.quiet is not None and every_ms is not None:
            self.recovery_log = RecoveryLog(
                archive,
                self.archivers,
                metrics,
                lambda: self.state.node(host),
                every_ms=every_ms,
                quiet=options.quiet,
            )
        self._reporter = StatusReporter(options, services, self.archivers, self._problems, self.recovery_log)
        self._span_s = (every_ms or 0) / 1000
        # Half a span: with a whole one, the end of a quiet time could be noticed almost a span late.
        self._waking_s = min(options.scan_s, options.scan_s if every_ms is None else every_ms / 2000)

    async def run(self, discovery: StreamDiscovery) -> None:
        """Run until cancelled. Raises InvalidSettingError when it cannot begin."""

        async def report() -> None:
            await self._reporter.report(
                discovery_problem=discovery.problem,
                refused=discovery.refused,
                is_login_refused=self._is_login_refused,
            )

        turns = count()

        async def wake_changed() -> None:
            self.archivers.wake_changed(next(turns))

        with self.state.lock():
            # After `lock`, which creates the directory whose disk is measured here.
            self.disk_guard.check_limit()
            periodic = [
                asyncio.create_task(self._repeat("disk", GUARD_S, self.disk_guard.release_pins)),
                asyncio.create_task(self._repeat("broker", LOGIN_S, self._log_in)),
                asyncio.create_task(self._repeat("quiet streams", self._waking_s / WAKING_TURNS, wake_changed)),
                asyncio.create_task(self._repeat("status", SHOW_S, report)),
            ]
            if self.recovery_log is not None:
                turn = self.recovery_log.turn
                periodic.append(asyncio.create_task(self._repeat("recovery log", self._span_s, turn)))
            try:
                await discovery.run(self.archivers)
            finally:
                for task in periodic:
                    task.cancel()
                self.archivers.cancel()
                # Once all tasks are cancelled: one that went on would ask an archive that takes no requests any more.
                # Before they have ended: cancelling a task does not end the thread that stages for it, and this does.
                self._archive.stop()
                await asyncio.gather(*periodic, return_exceptions=True)
                # Before the lock is let go: the next agent may not find archivers of this one at work on its pins.
                await self.archivers.wait_ended()

    async def _repeat(self, subject: str, pause_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
                self._problems.clear(subject)
            except Exception as err:  # noqa: BLE001  not even a bug may end it unseen
                is_expected = isinstance(err, ColdstreamError | OSError)
                text = str(err) if is_expected else f"{subject}: {err!r}"
                self._problems.report(subject, text, bug=None if is_expected else err)
                self.metrics.failed(err)
            await asyncio.sleep(pause_s)

    async def _log_in(self) -> None:
        """Try the login, so that a broker that refuses it shows even while no stream asks the broker for anything."""
        try:
            await self._broker.login()
        except LoginRefusedError:
            self._is_login_refused = True
            raise
        # Not in a `finally`: a broker that does not answer says nothing about the login.
        self._is_login_refused = False
