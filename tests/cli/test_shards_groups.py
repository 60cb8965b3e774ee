"""`coldstream shards groups`, and what `read --group` refuses."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.groups.member import GroupMember
from coldstream.manifest.shard_changes import first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.cli.conftest import Cli
from tests.support.written_maps import write

NOW = TimestampMs(1_000)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> MemoryTable:
    found = MemoryTable()
    monkeypatch.setattr("coldstream.store.table.DynamoTable", lambda _: found)
    monkeypatch.setenv("COLDSTREAM_TABLE", "manifest")
    partitions = [Partition(0, f"orders-{at}") for at in range(2)]
    kinds = ShardKind.SUPER_STREAM, ShardHash.MURMUR3
    declared = first_map("/", "orders", *kinds, partitions=partitions, definition="{}", at=NOW)
    write(found, declared)
    return found


async def take_part(table: MemoryTable) -> None:
    async with GroupMember(ConsumerGroup("billing", table, "one"), "/", "orders", range(2)) as member:
        async for assignment in member.assignments():
            if len(assignment.partitions) == 2:
                await member.commit(1, Offset(7))
                return


def test_groups_are_listed_with_what_they_have_committed(cli: Cli, table: MemoryTable) -> None:
    asyncio.run(take_part(table))
    (listed,) = cli("shards", "groups", "orders", "--output", "json").json
    assert listed["group"] == "billing"
    assert listed["members"] == []
    partition = {"number": 1, "owner": None, "epoch": 1, "committed": 7, "lag": None}
    assert listed["partitions"][1] == partition
    shown = cli("shards", "groups", "orders").out
    assert "orders-1" in shown
    assert "nobody" in shown


def test_a_stream_without_groups_says_how_to_begin_one(cli: Cli, table: MemoryTable) -> None:
    done = cli("shards", "groups", "orders")
    assert done.code == 0
    assert "--group" in done.err


def test_a_name_that_is_no_sharded_stream_is_not_found(cli: Cli, table: MemoryTable) -> None:
    assert cli("shards", "groups", "other").code == 3


@pytest.mark.parametrize("options", [("--group", "g"), ("--follow", "--group", "g", "--consumer-name", "c")])
def test_a_group_needs_follow_and_takes_the_place_of_a_name(cli: Cli, options: tuple[str, ...]) -> None:
    done = cli("read", "orders", "--resolver", "http://localhost:1", *options)
    assert done.code == 2
    assert "--group" in done.err


def test_a_group_needs_a_table(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSTREAM_TABLE", raising=False)
    done = cli("read", "orders", "--resolver", "http://localhost:1", "--follow", "--group", "g")
    assert done.code == 2
    assert "COLDSTREAM_TABLE" in done.err
