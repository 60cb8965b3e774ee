"""Which directories the agent follows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from coldstream.agent import agent as agent_module
from coldstream.agent.agent import Agent
from coldstream.agent.archive import ArchiveClient
from coldstream.agent.disk.disk_discovery import DiskDiscovery
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.options import AgentOptions
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.stream_file import PendingLoss, RememberedStream
from coldstream.flow.bandwidth import BandwidthLimit
from coldstream.live.address import BrokerAddress
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset
from tests.support.node import Node

INCARNATION = Incarnation("__orders_1763700000000000000")


class Bus:
    def __init__(self) -> None:
        self.lost: list[dict[str, object]] = []

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        assert detail_type == "Segment Lost"
        self.lost.append(json.loads(detail)["lost"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "SHOW_S", 0.02)


async def test_a_loss_is_told_though_no_pin_and_no_directory_of_its_stream_is_left(tmp_path: Path):
    """As when the last pins of a deleted stream were given up while AWS was away, and the agent was killed then."""
    node = Node(tmp_path / "stream")
    options = AgentOptions(
        state=tmp_path / "state",
        broker=BrokerAddress.from_uri("rabbitmq-stream://localhost"),
        data=node.data,
        scan_s=0.05,
    )
    bus = Bus()
    archive = ArchiveClient(MemoryTable(), MemoryObjects(), bus, Keys(), BandwidthLimit(None))
    agent = Agent(options, archive, node, StreamListing(None), AgentMetrics())
    loss = PendingLoss(Offset(5), Offset(9), "the disk was nearly full")
    remembered = RememberedStream(StreamId("/", "orders", INCARNATION), Offset(5), (loss,))
    agent.state.stream_file(INCARNATION).save(remembered)
    task = asyncio.create_task(agent.run(DiskDiscovery(agent.options)))
    try:
        async with asyncio.timeout(10):
            while any(agent.state.stream_files.iterdir()) or agent.archivers:  # noqa: ASYNC110  what is waited for has no event
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert bus.lost == [{"first_offset": 5, "next_offset": 9}]
