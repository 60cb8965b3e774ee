"""Three RabbitMQ nodes in one cluster, all on loopback, each with its own ports and data directory.

A stream declared at any of them gets a replica on each. Nodes may be killed, started again, paused and resumed.

    with Cluster() as cluster, cluster.nodes[0].connect() as streams:
        streams.create_stream("orders", max_segment_bytes=100_000)
        leader = cluster.leader("orders")
        leader.kill()
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.broker import Broker, BrokerError
from tests.support.epmd import Epmd
from tests.support.releases import HOST_RELEASE, Release

TICK_S = 60
"""A node that has been silent for about so long is taken for dead by the others: RabbitMQ's own default.

A node that is stopped or killed is missed at once. Less is for tests that pause nodes: on a busy machine one that lives
may be silent for seconds, and the others then route past it.
"""

ELECTION_TIMEOUT_S = 60.0


class Cluster:
    """Nodes that formed a cluster, used as a context manager. Takes about 15 s to start on two cores.

    They end with the thread that started them. Raises BrokerError where they cannot be started.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        release: Release = HOST_RELEASE,
        management: bool = False,
        plugins: Sequence[str] = (),
        tick_s: int = TICK_S,
    ) -> None:
        self._epmd = Epmd()
        self._tick_s = tick_s
        erlang = f"-kernel net_ticktime {tick_s} +sbwt none +sbwtdcpu none +sbwtdio none"  # idle nodes leave the cores
        self.nodes = [
            Broker(release=release, management=management, plugins=plugins, epmd=self._epmd, erlang=erlang)
            for _ in range(size)
        ]
        names = [
            f"cluster_formation.classic_config.nodes.{at} = {node.node}\n" for at, node in enumerate(self.nodes, 1)
        ]
        for node in self.nodes:
            node.settings = f"cluster_formation.peer_discovery_backend = classic_config\n{''.join(names)}"
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            for node in self.nodes:
                opening.enter_context(node.prepared())
            opening.enter_context(self._epmd)
            for node in self.nodes:
                opening.callback(node.kill)  # their data are of no use any more
                node.begin()
            for node in self.nodes:
                node.wait_ready()
            self._exit = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def leader(self, stream: str) -> Broker:
        """Return the node of the stream's leader, of the nodes that run, as soon as one of those leads it."""
        deadline = time.monotonic() + ELECTION_TIMEOUT_S
        while time.monotonic() < deadline:
            running = [node for node in self.nodes if node.is_running]
            with running[0].connect() as streams:
                port, _ = streams.ports(stream)
            for node in running:
                if node.stream_port == port:
                    return node
            time.sleep(0.2)
        raise BrokerError(f"the stream {stream} has no leader")

    def end_writer(self, stream: str) -> None:
        """End the process that writes the stream. A leader is elected, often the same; no node or connection ends."""
        queue = f'element(2, rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{stream}">>)))'
        running = next(node for node in self.nodes if node.is_running)
        running.ctl("eval", f"exit(amqqueue:get_pid({queue}), kill).")

    def settled_leader(self, stream: str) -> Broker:
        """Return the leader in which all nodes that run agree: one that has just started knows an earlier one."""
        deadline = time.monotonic() + ELECTION_TIMEOUT_S
        running = [node for node in self.nodes if node.is_running]
        while time.monotonic() < deadline:
            told = set()
            for node in running:
                with node.connect() as streams:
                    told.add(streams.ports(stream)[0])
            for node in running:
                if told == {node.stream_port}:
                    return node
            time.sleep(0.2)
        raise BrokerError(f"the stream {stream} has no leader in which all nodes agree")

    def wait_replicated(self, stream: str) -> None:
        """Wait until every node has a replica of the stream that runs."""
        deadline = time.monotonic() + ELECTION_TIMEOUT_S
        while time.monotonic() < deadline:
            with self.nodes[0].connect() as streams:
                port, others = streams.ports(stream)
            if {port, *others} == {node.stream_port for node in self.nodes}:
                return
            time.sleep(0.2)
        raise BrokerError(f"the stream {stream} has a leader at {port} and replicas at {others} only")

    def wait_alone(self, node: Broker) -> None:
        """Wait until a node takes all the others for dead, `tick_s` or so after they fell silent."""
        deadline = time.monotonic() + 10 * self._tick_s
        while node.ctl("eval", "length(nodes()).").strip() != "0":
            if time.monotonic() > deadline:
                raise BrokerError(f"{node.node} still hears of others")
