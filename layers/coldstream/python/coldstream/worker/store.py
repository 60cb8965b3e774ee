"""The kind store: a broker's streams are archived by the stream protocol, by the machinery of the agent.

An agent with the protocol source runs in a loop in the job's thread, for the streams that match. It records, stages and
announces as `coldstream agent` does, and the upload function archives. The archive is the cursor: each attempt asks the
table where a stream's archive ends, and the broker for what follows. So a job whose worker died loses nothing that the
broker still has, and archives nothing twice, whatever became of the worker's directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from coldstream.agent.agent import Agent
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import MAX_SCAN_S, AgentOptions, SegmentSource
from coldstream.agent.proof.broker import BrokerConnections
from coldstream.agent.proof.incarnations import CLOCKS_APART_MS
from coldstream.agent.proof.management import ManagementClient
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.recording.plan import RecordingPlan
from coldstream.agent.recording.protocol_discovery import ProtocolDiscovery
from coldstream.agent.rules import Rules
from coldstream.errors import ColdstreamError, InvalidInputError, InvalidSettingError, UnavailableError
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.jobs.name_patterns import NamePatterns
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import StoreSpec
from coldstream.jobs.store import JobStore
from coldstream.live.address import BrokerAddress
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec, parse_offset_spec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.replay.request import parse_bounds
from coldstream.units import Offset, parse_duration
from coldstream.worker.store_state import choose_directory, remove, tidy
from coldstream.worker.store_watch import STARTS, StoreWatch
from coldstream.worker.tools import WorkerTools

LOOK_S = 0.2
"""How often the job looks whether it is to stop, and tells how far it is."""

THREADS = 8
UPLOADS = 2


def run_store(run: JobRun, tools: WorkerTools) -> RunEnd:
    """Archive what a job says until its end, or until it is stopped. Raises UnavailableError, AccessDeniedError.

    InvalidInputError is raised for a broker that the worker does not know, or patterns without a management API.
    """
    spec = run.spec
    assert isinstance(spec, StoreSpec)
    given = NamePatterns.of(spec.streams)
    management = tools.brokers.management_url(spec.broker)
    if given.patterns and management is None:
        raise InvalidInputError(
            "streams",
            f"have patterns, and the management API of broker {spec.broker!r} is not known to this worker: it lists"
            f" the streams. Give the worker --broker {spec.broker}=http://user:password@host:15672",
        )
    tidy(tools.state, JobStore(tools.table), but=run.job.id)
    directory = choose_directory(tools.state, run.job.id)
    options = AgentOptions(
        state=directory,
        broker=BrokerAddress.from_uri(tools.brokers.stream_uri(spec.broker)),
        source=SegmentSource.PROTOCOL,
        management=management,
        streams=tuple((spec.vhost, name) for name in given.names),
        rules=Rules(tuple(map(_as_shell, spec.streams)), (), (_literal(spec.vhost),), ()),
        max_lag_s=parse_duration(spec.max_lag),
        scan_s=min(parse_duration(spec.poll_interval), MAX_SCAN_S),
        uploads=UPLOADS,
        bandwidth_bytes_per_s=spec.rate,
        listen_host="",
        unseen=None if spec.start == "first" else f"before the start of job {run.job.id}, or deleted by the broker",
    )
    try:
        end = asyncio.run(_StoreAttempt(run, tools, spec, options).run_until_stopped())
    except InvalidSettingError as err:
        if err.field != "--state":
            raise
        # Another process took the directory since it was chosen: another attempt chooses another.
        raise UnavailableError(str(err)) from err
    if isinstance(end, Finished):
        remove(directory)
    return end


class StoreMetrics(AgentMetrics):
    """The agent's metrics, and for the job: the bytes that were archived, and what failed."""

    def __init__(self, run: JobRun) -> None:
        super().__init__()
        self._run = run
        self._last_failure = ""
        self._quarantined = 0
        self.bytes_archived = 0

    def archived(self, stream: StreamId, size_bytes: int) -> None:
        """Count a slice that is in the manifest."""
        super().archived(stream, size_bytes)
        self.bytes_archived += size_bytes

    def quarantined(self, stream: StreamId) -> None:
        """Skip a segment that the archive does not take."""
        super().quarantined(stream)
        self._quarantined += 1
        reason = "it failed verification and is in quarantine: see `coldstream quarantine list`"
        self._run.skip(f"segment {self._quarantined} of {stream}", 1, reason)

    def failed(self, err: BaseException, stream: StreamId | Incarnation | None = None) -> None:
        """Count what failed and is tried again, and say it unless it was said last."""
        super().failed(err, stream)
        self._run.advance(failures=1)
        if str(err) != self._last_failure:
            self._last_failure = str(err)
            self._run.say(f"failed, and is tried again: {err}"[:500])


@dataclass(slots=True)
class _StoreAttempt:
    run: JobRun
    tools: WorkerTools
    spec: StoreSpec
    options: AgentOptions

    async def run_until_stopped(self) -> RunEnd:
        """Run an agent until the job is to stop, or all streams have come to the job's end."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="store"))
        watch, metrics = StoreWatch(self.run, self.tools.table), StoreMetrics(self.run)
        async with self._agent(watch, metrics) as (agent, discovery, running):
            told_bytes = 0
            while True:
                await asyncio.wait([running], timeout=LOOK_S)
                if running.done():
                    running.result()
                    raise UnavailableError("the recording has ended by itself")
                reached = {key: one.progress.archived_to for key, one in agent.archivers.items()}
                watch.tell(reached, metrics.bytes_archived - told_bytes, self.tools.now)
                told_bytes = metrics.bytes_archived
                if self.run.should_stop():
                    return Interrupted()
                if self._is_done(agent, discovery, watch):
                    return Finished("All streams are archived to the end.")

    @asynccontextmanager
    async def _agent(
        self, watch: StoreWatch, metrics: StoreMetrics
    ) -> AsyncIterator[tuple[Agent, ProtocolDiscovery, asyncio.Task[None]]]:
        """Run an agent while the block runs. Raises at once what keeps it from beginning: a refused login, for one."""
        options = self.options
        limit = BandwidthLimit(options.bandwidth_bytes_per_s)
        archive = await asyncio.to_thread(self.tools.archive_client, limit, options.uploads)
        broker = BrokerConnections(options.broker, metrics)
        management = None if options.management is None else ManagementClient(options.management)
        listing = StreamListing(management)
        plan = RecordingPlan(self._start_of, self._end(), watch)
        discovery = ProtocolDiscovery(options, archive, broker, listing, metrics, plan=plan)
        agent = Agent(options, archive, broker, listing, metrics)
        running: asyncio.Task[None] | None = None
        try:
            await broker.login()
            running = asyncio.create_task(agent.run(discovery), name=f"agent of job {self.run.job.id}")
            yield agent, discovery, running
        finally:
            if running is not None:
                running.cancel()
                with suppress(asyncio.CancelledError, ColdstreamError):
                    await running
            else:
                archive.stop()
            await broker.close()
            if management is not None:
                management.close()

    def _start_of(self, vhost: str, name: str) -> OffsetSpec:  # noqa: ARG002  a job has one vhost
        """Return where to begin with a stream of which nothing is archived: the same in each attempt of the run."""
        known = self.run.cursor.get(STARTS, {}).get(name)
        if known is not None:
            return AtOffset(Offset(known))
        if self.spec.start == "now":
            return AtTimestamp(self.run.began_at)
        found = parse_offset_spec(self.spec.start, self.run.began_at)
        return AtTimestamp(self.run.began_at) if found == AtEnd("next") else found

    def _end(self) -> AtOffset | AtTimestamp | None:
        return parse_bounds("first", self.spec.end, self.run.began_at)[1]

    def _is_done(self, agent: Agent, discovery: ProtocolDiscovery, watch: StoreWatch) -> bool:
        """Tell whether all streams that match have come to the end, and nothing of them is left to be archived."""
        end, followed = self._end(), discovery.followed
        if end is None or followed is None:
            return False
        is_over = isinstance(end, AtTimestamp) and self.tools.now() >= end.timestamp + CLOCKS_APART_MS
        if not followed and not is_over:
            return False
        for place in followed:
            if place in discovery.refused:
                self.run.skip(f"stream {place[1]!r}", 1, discovery.refused[place])
            elif not (watch.is_archived_to_its_end(place) or (is_over and place in watch.waiting)):
                return False
        # What is missing is announced before the job ends: nobody else would say why it is not there.
        return not any(one.losses.are_suspected or one.identity.lost for one in agent.archivers.values())


def _as_shell(pattern: str) -> str:
    """Return a pattern, in which only * and ? are special, as a shell would have it."""
    return pattern.replace("[", "[[]")


def _literal(text: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)
