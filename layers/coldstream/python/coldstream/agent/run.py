"""Put an agent together from its options and the environment, and run it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from coldstream.agent.agent import Agent, Follower
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.follow_disk import DiskFollower
from coldstream.agent.monitor.http import StatusServer
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions, Source
from coldstream.agent.proof.broker import BrokerConnections, BrokerProver
from coldstream.agent.proof.management import ManagementClient
from coldstream.agent.proof.naming import Naming
from coldstream.agent.recording.follow_protocol import ProtocolFollower
from coldstream.flow.bandwidth import BandwidthLimit

log = logging.getLogger(__name__)

SWITCH_S = 0.001
"""Of Python's threads, a fifth of the default: the one that pins what just rolled must not wait for others."""

THREADS = 16
"""For what blocks for a moment: the disk's directories, the manifest, the event bus."""


async def run_agent(options: AgentOptions, environment: Mapping[str, str]) -> None:
    """Run an agent until cancelled. Raises InvalidSettingError when it cannot begin."""
    sys.setswitchinterval(SWITCH_S)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="agent"))
    limit = BandwidthLimit(options.bandwidth_bytes_per_s)
    archive = ArchiveClient.from_environment(options.environment(environment), limit, options.uploads)
    metrics = AgentMetrics()
    broker = BrokerConnections(options.broker, metrics)
    management = None if options.management is None else ManagementClient(options.management)
    naming = Naming(management)
    agent = Agent(options, archive, broker, naming, metrics)
    with ExitStack() as stack:
        if management is not None:
            stack.callback(management.close)
        if options.listen_host:
            server = StatusServer(metrics, lambda: agent.turned_s, host=options.listen_host, port=options.listen_port)
            stack.enter_context(server)
            log.info("listening on %s port %d", options.listen_host, server.port)
        try:
            await agent.run(_follower(options, archive, broker, naming))
        finally:
            await broker.close()


def _follower(options: AgentOptions, archive: ArchiveClient, broker: BrokerProver, naming: Naming) -> Follower:
    if options.source is Source.PROTOCOL:
        return ProtocolFollower(archive, broker, naming)
    assert options.data is not None
    return DiskFollower(options.data)
