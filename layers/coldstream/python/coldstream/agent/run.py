"""Put an agent together from its options and the environment, and run it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from coldstream.agent.agent import Agent, StreamDiscovery
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.disk_discovery import DiskDiscovery
from coldstream.agent.monitor.http import StatusServer
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.agent.proof.broker import BrokerConnections
from coldstream.agent.proof.management import ManagementClient
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.recording.protocol_discovery import ProtocolDiscovery
from coldstream.flow.bandwidth import BandwidthLimit

log = logging.getLogger(__name__)

SWITCH_S = 0.001
"""How long a Python thread runs before it has to let others run: a fifth of the default.

The thread that pins a segment as it rolls must not wait for threads that compute: by then retention may have deleted
it.
"""

THREADS = 16
"""Threads for calls that block for a moment: on the disk's directories, the manifest, the event bus."""


async def run_agent(options: AgentOptions, environment: Mapping[str, str]) -> None:
    """Run an agent until cancelled. Raises InvalidSettingError when it cannot begin."""
    sys.setswitchinterval(SWITCH_S)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="agent"))
    limit = BandwidthLimit(options.bandwidth_bytes_per_s)
    archive = ArchiveClient.from_environment(options.environment(environment), limit, options.uploads)
    metrics = AgentMetrics()
    broker = BrokerConnections(options.broker, metrics)
    management = None if options.management is None else ManagementClient(options.management)
    listing = StreamListing(management)
    discovery: StreamDiscovery
    if options.source is SegmentSource.PROTOCOL:
        discovery = ProtocolDiscovery(options, archive, broker, listing, metrics)
    else:
        discovery = DiskDiscovery(options)
    agent = Agent(options, archive, broker, listing, metrics)
    with ExitStack() as stack:
        if management is not None:
            stack.callback(management.close)  # last: it ends requests that threads of the agent still wait for
        if options.listen_host:
            server = StatusServer(
                metrics, lambda: agent.archivers.turned_s, host=options.listen_host, port=options.listen_port
            )
            stack.enter_context(server)
            log.info("listening on %s port %d", options.listen_host, server.port)
        try:
            await agent.run(discovery)
        finally:
            # Only after the agent: its archivers ask the broker until they have ended.
            await broker.close()
