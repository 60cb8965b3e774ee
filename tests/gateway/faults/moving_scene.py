"""A stream of a cluster whose beginning only the archive has, and gateways in front of the cluster's nodes.

There is a gateway beside each node, which tells clients the gateways of the others, and one that is the address of all.
The archive is a copy of what the nodes had on their disks.
"""

from __future__ import annotations

import itertools
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.proxy.addresses import GatewayAddresses
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import takeover_maker
from tests.gateway.faults.disk_archive import DiskArchive
from tests.support.broker import Broker
from tests.support.cluster import Cluster
from tests.support.epmd import free_ports
from tests.support.gateway import HOST, GatewayThread

SIZE_BYTES = 200
SEGMENT_BYTES = 100_000
KEPT_BYTES = 250_000
ARCHIVED = 4000
LIVE = 700
"""Messages that make a segment roll, so that retention looks at the log."""
NOT_ARCHIVED = 5
"""Chunks at the end that no agent has archived yet."""
RETENTION_S = 120.0

_NAMES = itertools.count()


@dataclass
class MovingScene:
    """The stream and the gateways, as a context manager. All nodes run when it is entered."""

    cluster: Cluster
    stream: str = field(default_factory=lambda: f"moving-{next(_NAMES)}")
    figures: GatewayFigures = field(default_factory=GatewayFigures)
    beside: dict[str, GatewayThread] = field(default_factory=dict)
    """The gateways beside the nodes, by the nodes' names."""

    def __enter__(self) -> Self:
        self.archive = DiskArchive()
        self._make_stream()
        ports = {node.node: port for node, port in zip(self.cluster.nodes, free_ports(3), strict=True)}
        nodes = {(HOST, node.stream_port): (HOST, ports[node.node]) for node in self.cluster.nodes}
        with ExitStack() as opening:
            for node in self.cluster.nodes:
                options: dict[str, Any] = {
                    "listen": (HOST, ports[node.node]),
                    "addresses": GatewayAddresses(None, nodes),
                }
                self.beside[node.node] = opening.enter_context(self._gateway(node, **options))
            # Nodes are taken in turn: the first client's first connection is to the leader.
            self.for_all = opening.enter_context(self._gateway(self.cluster.leader(self.stream), *self.followers()))
            self._exit = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def followers(self) -> list[Broker]:
        """Return the nodes that do not lead the stream."""
        leader = self.cluster.leader(self.stream)
        return [node for node in self.cluster.nodes if node is not leader]

    @property
    def published(self) -> int:
        """How many messages there are before somebody else publishes."""
        return ARCHIVED + LIVE

    @property
    def archived_messages(self) -> int:
        """How many messages the archive has."""
        return sum(chunk.header.records for chunk in self._chunks)

    def _gateway(self, *nodes: Broker, **options: Any) -> GatewayThread:
        history = MemoryHistory()
        history.put("/", self.stream, self._chunks)
        make = takeover_maker(history, TakeoverOptions(archive_poll_s=0.2), self.figures)
        places = [(HOST, node.stream_port) for node in nodes]
        return GatewayThread(*places, make=make, **options)

    def _make_stream(self) -> None:
        first = self.cluster.nodes[0]
        with first.connect() as streams:
            streams.create_stream(self.stream, max_segment_bytes=SEGMENT_BYTES)
        self.cluster.wait_replicated(self.stream)
        self._publish(0, ARCHIVED)
        name = first.stream_directory(self.stream).name  # at all nodes
        self.archive.copy(first.data_directory / name)
        policy = json.dumps({"max-length-bytes": KEPT_BYTES})
        first.ctl("set_policy", self.stream, f"^{self.stream}$", policy, "--apply-to", "queues")
        self._publish(ARCHIVED, LIVE)
        for node in self.cluster.nodes:
            self._wait_retained(node.data_directory / name)
        # What is published from here on stays: nobody archives it.
        first.ctl("clear_policy", self.stream)
        self.archive.copy(first.data_directory / name)
        self._chunks = self.archive.chunks[:-NOT_ARCHIVED]

    def _publish(self, first: int, messages: int) -> None:
        with self.cluster.leader(self.stream).connect() as streams:
            for at in range(first, first + messages, 100):
                entries = [(b"%d:" % number).ljust(SIZE_BYTES, b".") for number in range(at, at + 100)]
                streams.publish(self.stream, entries)

    def _wait_retained(self, directory: Path) -> None:
        deadline = time.monotonic() + RETENTION_S
        while min(int(segment.stem) for segment in directory.glob("*.segment")) == 0:
            assert time.monotonic() < deadline, f"nothing is deleted in {directory}"
            time.sleep(0.1)
