"""A cluster whose leader's node is killed, and whose leadership moves, while stock clients read and publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.gateway.faults.moving_scene import MovingScene
from tests.gateway.faults.restless_publisher import RestlessPublisher
from tests.gateway.faults.restless_reader import RestlessReader
from tests.support.broker import find_rabbitmq
from tests.support.cluster import Cluster
from tests.support.fixtures import do_without

pytestmark = pytest.mark.broker

EARLY, LATER, LATEST = 500, 2000, 3000
"""Messages; the archive has some 4,500."""


def updates(reader: RestlessReader) -> int:
    """Return how often the broker has told a reader that its subscription has ended."""
    return reader.endings.count("Metadata Update")


@pytest.fixture
def scene() -> Iterator[MovingScene]:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with Cluster() as cluster, MovingScene(cluster) as running:
        yield running


def test_each_message_comes_once_while_the_leader_is_killed_and_moves_and_confirms_are_kept(scene: MovingScene) -> None:
    cluster, leader, follower = scene.cluster, scene.cluster.leader(scene.stream), scene.followers()[0]
    assert scene.archived_messages > LATEST
    with ExitStack() as opening:
        # Each has a connection to find its way and one to read by: so the second of the three reads from the leader.
        ports = {"one": scene.for_all.port, "two": scene.for_all.port, "three": scene.for_all.port}
        ports["beside"] = scene.beside[follower.node].port
        readers: list[RestlessReader] = []
        for name, port in ports.items():
            readers.append(opening.enter_context(RestlessReader(name, port, scene.stream)))
            readers[-1].allow(EARLY)
            readers[-1].wait(EARLY)
        port = scene.beside[follower.node].port
        publisher = opening.enter_context(RestlessPublisher(port, scene.stream, first=scene.published))
        publisher.wait_confirmed(100)

        leader.kill()
        publisher.wait_confirmed(100)
        for reader in readers:
            reader.allow(LATER)
            reader.wait(LATER)
        lost = {reader.name for reader in readers if "Connection Closed" in reader.endings}
        assert "two" in lost
        assert scene.figures.takeovers_total >= 2 * len(readers)

        leader.start()
        cluster.wait_replicated(scene.stream)
        for reader in readers:
            assert updates(reader) == (reader.name not in lost), reader.endings
        cluster.end_writer(scene.stream)
        publisher.wait_confirmed(100)
        for reader in readers:
            reader.allow(LATEST)
            reader.wait(LATEST)
            # Nobody loses a connection: the broker says that the subscription has ended.
            assert updates(reader) == 1 + (reader.name not in lost), reader.endings

        leader = cluster.settled_leader(scene.stream)
        staying = next(node for node in cluster.nodes if node is not leader)
        publisher.port = readers[-1].port = scene.beside[staying.node].port
        leader.stop()
        publisher.wait_confirmed(100)
        publisher.stop()
        end = max(publisher.confirmed) + 1
        for reader in readers:
            reader.allow(2 * end)
            reader.wait(end)
    for reader in readers:
        assert reader.numbers == list(range(len(reader.numbers))), reader.endings
        assert publisher.confirmed <= set(reader.numbers)
        assert reader.offsets == sorted(set(reader.offsets))
    # Not of each reader: one that loses its connection just there begins anew at the broker.
    assert scene.figures.handovers_total > 0
    assert not sum(scene.figures.gaps_total.values())
