"""Where a group began: what it reads after the map has changed."""

from __future__ import annotations

import pytest

from coldstream.errors import CorruptionError
from coldstream.groups.group_start import GroupStart
from coldstream.manifest.shard_changes import bound, doubled, first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset
from coldstream.manifest.state_item import StateItem
from coldstream.units import Offset, TimestampMs

NOW = TimestampMs(1_000)
NEXT = AtEnd("next")


def orders() -> ShardMap:
    names = [Partition(0, f"orders-{at}") for at in range(2)]
    kind = ShardKind.SUPER_STREAM
    return bound(first_map("/", "orders", kind, ShardHash.MURMUR3, partitions=names, definition="", at=NOW), NOW)


def test_what_came_later_begins_at_its_own_start() -> None:
    began = GroupStart.of(orders(), NEXT)
    grown = doubled(orders(), [Partition(0, f"orders-{at}") for at in (2, 3)], "", NOW)
    assert began.specs(grown, NEXT) == {0: NEXT, 1: NEXT}
    assert began.specs(bound(grown, NOW), NEXT) == {0: NEXT, 1: NEXT, 2: AtOffset(Offset(0)), 3: AtOffset(Offset(0))}


def test_a_position_is_kept_whatever_members_are_told_later() -> None:
    began = GroupStart.of(orders(), ShardPosition(1, {0: Offset(7), 1: Offset(9)}))
    assert began.specs(orders(), FIRST) == {0: AtOffset(Offset(7)), 1: AtOffset(Offset(9))}


def test_what_the_group_left_out_stays_left_out() -> None:
    assert GroupStart(2, {1: None}).specs(orders(), FIRST) == {1: FIRST}


def test_its_item_reads_back() -> None:
    began = GroupStart(3, {0: None, 2: Offset(2**63)})
    assert GroupStart.from_item(began.to_item("#groups")) == began


@pytest.mark.parametrize("content", [b'{"version": 1}', b'{"version": 1, "partitions": 1, "begins": [1]}', b"[]"])
def test_a_malformed_item_is_told(content: bytes) -> None:
    with pytest.raises(CorruptionError):
        GroupStart.from_item(StateItem("#groups", "start", 1, content))
