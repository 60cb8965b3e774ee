"""The agent's status, put together from its archivers, its disk and its problems."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import coldstream
from coldstream.agent.archiver import StreamArchiver
from coldstream.agent.monitor.problems import AgentProblems
from coldstream.agent.monitor.status import AgentStatus, StreamStatus
from coldstream.agent.options import AgentOptions
from coldstream.agent.recovery_log import RecoveryLog
from coldstream.agent.services import Services
from coldstream.agent.stream_state import StreamState
from coldstream.errors import ColdstreamError
from coldstream.manifest.stream import Incarnation
from coldstream.units import now_ms


class StatusReporter:
    """Takes a snapshot of the agent every few seconds, and gives it to the metrics."""

    def __init__(
        self,
        options: AgentOptions,
        services: Services,
        archivers: Mapping[Incarnation, StreamArchiver],
        problems: AgentProblems,
        recovery_log: RecoveryLog | None = None,
    ) -> None:
        self._options = options
        self._services = services
        self._archivers = archivers
        self._problems = problems
        self._recovery_log = recovery_log
        self._started_at = now_ms()

    async def report(
        self, *, discovery_problem: str | None, refused: Mapping[tuple[str, str], str], is_login_refused: bool
    ) -> None:
        """Take a snapshot. `refused` are streams without an archiver, and why the broker refuses each."""
        try:
            listed = await self._services.naming.known()
            self._problems.clear("management")
        except ColdstreamError as err:
            self._problems.report("management", str(err))
            # Only retention comes from the list: the rest of the status is shown without it.
            listed = ()
        broker_streams = {(stream.vhost, stream.name): stream for stream in listed}
        streams: list[StreamStatus] = []
        # A copy: archivers may end, and leave the mapping, while the next line waits for the disk.
        for archiver in list(self._archivers.values()):
            stream = archiver.stream
            names = ("", "") if stream is None else (stream.vhost, stream.name)
            streams.append(await archiver.status(broker_streams.get(names)))
        refused_streams = self._report_refused(streams, refused, is_login_refused=is_login_refused)
        space = os.statvfs(self._options.state)
        self._services.metrics.show(
            AgentStatus(
                at=now_ms(),
                started_at=self._started_at,
                version=coldstream.__version__,
                host=self._services.host,
                disk_free_bytes=space.f_bavail * space.f_frsize,
                disk_total_bytes=space.f_blocks * space.f_frsize,
                max_lag_s=self._options.archive_lag_s,
                problems=(*self._problems, *([] if discovery_problem is None else [discovery_problem])),
                settings=self._options.shown(),
                streams=tuple(streams),
                refused_streams=refused_streams,
                is_login_refused=is_login_refused,
                log_objects=None if self._recovery_log is None else len(self._recovery_log),
                logged_at=None if self._recovery_log is None else self._recovery_log.complete_at,
            )
        )

    def _report_refused(
        self, streams: Sequence[StreamStatus], refused: Mapping[tuple[str, str], str], *, is_login_refused: bool
    ) -> int:
        """Make one problem of all streams that the broker refuses, and return how many there are.

        A refused login is a problem of its own, and the cause of the others.
        """
        reasons = {name: why for (_, name), why in refused.items()}
        # One that was refused while its snapshot was taken has no reason yet: the next one has it.
        reasons |= {
            stream.labels[1]: stream.last_failure
            for stream in streams
            if stream.state == StreamState.REFUSED and stream.last_failure is not None
        }
        if reasons and not is_login_refused:
            name, why = next(iter(reasons.items()))
            self._problems.report(
                "refused",
                f"the broker refuses streams, and they are not archived: {len(reasons)}, such as {name}: {why}",
            )
        else:
            self._problems.clear("refused")
        return len(reasons)
