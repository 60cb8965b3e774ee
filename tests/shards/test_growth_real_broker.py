"""A super stream of stock producers grows and shrinks while everything is killed; `make soak` does so for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.growth.check import problems_of
from tests.growth.world import GrowthWorld
from tests.support.broker import find_rabbitmq
from tests.support.fixtures import do_without
from tests.support.stock_producer import find_stream_client

pytestmark = pytest.mark.broker

SEED = 1


def test_each_message_comes_once_and_each_key_in_order_while_it_grows_and_shrinks(tmp_path: Path) -> None:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    if find_stream_client() is None:
        do_without("the stream client for Java", "with Java 17: scripts/stream-client/fetch")
    with GrowthWorld(tmp_path, SEED) as world:
        world.publish(1_000)
        world.kill_producer(0)
        world.kill_reader()
        for shards in (4, 2):
            world.kill_apply(shards, world.random.uniform(0.5, 8.0))
            # Old producers publish by the number of partitions of before, and are waited for.
            told = world.change_while_publishing(shards)
            if "readers to learn" in told:  # as at a halving
                told = world.change_while_publishing(shards, "--wait", "35s")
            assert "to be restarted" in told
            for number in range(len(world.producers)):
                world.kill_producer(number)
            world.publish(500)
            world.kill_reader()
            world.change_while_publishing(shards, "--producers-restarted", "--wait", "60s")
            assert not world.map.is_changing
            assert len(world.map.current) == shards
            world.publish(500)
        lines = world.finish()
        assert problems_of(lines, world.confirmed) == []
        assert world.forgotten() > 0.5
        assert sum(one.deleted_at is not None for one in world.map.partitions) == 2
