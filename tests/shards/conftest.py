"""A table, a bucket and a broker in memory, and what is declared on them."""

from __future__ import annotations

import pytest

from coldstream.shards.context import ShardContext
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.definition_file import definitions_of
from coldstream.shards.memory_broker import MemoryShardBroker
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import TimestampMs

NODES = ("rabbit@a", "rabbit@b", "rabbit@c")


def defined(text: str) -> ShardDefinition:
    (found,) = definitions_of(f"[[shards]]\n{text}", source="test")
    return found


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.time = 1_763_700_000_000

    def now(self) -> TimestampMs:
        return TimestampMs(self.time)

    def pause(self, seconds: float) -> None:
        self.time += int(seconds * 1000)


def context_of(table: MemoryTable, broker: MemoryShardBroker) -> ShardContext:
    clock = Clock()
    return ShardContext(
        table,
        MemoryObjects(),
        Keys(""),
        broker,
        clock.now,
        by="test",
        pause=clock.pause,
    )


@pytest.fixture
def broker() -> MemoryShardBroker:
    return MemoryShardBroker(*NODES)


@pytest.fixture
def context(broker: MemoryShardBroker) -> ShardContext:
    return context_of(MemoryTable(), broker)
