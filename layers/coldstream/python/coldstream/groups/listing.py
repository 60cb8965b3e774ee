"""The groups of a sharded stream as they are in the table: for people."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.groups.group_items import GROUP, group_names, source_of
from coldstream.groups.group_state import GroupState
from coldstream.groups.positions import GroupPosition, read_positions
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition of a group: the member that owns it, None if nobody does; its epoch; what is committed."""

    number: int
    owner: str | None
    epoch: int
    committed: Offset | None


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group, its members by name, and its partitions by number. A member that died is in it until its lease ends."""

    name: str
    members: tuple[str, ...]
    partitions: tuple[ListedPartition, ...]


def list_groups(table: ManifestReads, vhost: str, name: str) -> list[ListedGroup]:
    """Return the groups of a sharded stream. Cost: one Query, and for each group a GetItem and a Query."""
    listed = []
    for group in group_names(table, vhost, name):
        item = table.state_item(group.partition, GROUP)
        state = GroupState() if item is None else GroupState.from_bytes(item.data, source=source_of(item))
        members = {seat.session: seat.member for seat in state.seats}
        positions = read_positions(table, group.partition)
        partitions = tuple(
            ListedPartition(
                one.number,
                None if one.owner is None else members[one.owner],
                one.epoch,
                positions.get(one.number, GroupPosition(one.number)).offset,
            )
            for one in state.partitions
        )
        listed.append(ListedGroup(group.group, tuple(sorted(members.values())), partitions))
    return sorted(listed, key=lambda one: one.name)
