"""Sharded streams, on a broker in memory that lives as long as the world."""

from __future__ import annotations

import pytest

from coldstream.cli.shards_options import ShardBrokers
from coldstream.shards.memory_broker import MemoryShardBroker
from tests.faults.fault_acts import Act, CommandAct, Outcome, command
from tests.faults.faulty_world import FaultyWorld

_DEFINITION = '[[shards]]\nname = "readings-of-7f3a"\nkind = "streams"\nshards_per_node = 2\n'


def with_broker(act: CommandAct) -> Act:
    """Return a command that reaches the world's broker, whatever its address."""

    def on_broker(world: FaultyWorld) -> Outcome:
        if world.shard_broker is None:
            world.shard_broker = MemoryShardBroker()
        broker = world.shard_broker
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShardBrokers, "of", lambda *_: broker)
            return act(world)

    return on_broker


def _definition(world: FaultyWorld) -> tuple[str]:
    path = world.scratch / "shards.toml"
    path.write_text(_DEFINITION)
    return (str(path),)


APPLY = with_broker(command("shards", "apply", "--by", "alice", more=_definition))
