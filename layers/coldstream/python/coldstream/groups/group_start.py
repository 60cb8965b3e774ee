"""Where a group began: which partitions there were, and from where it reads those that it has no position in.

A map that changes changes what a start means: a partition that `next` named is sealed and is not written to any more,
or a replay takes the place of what `first` named. A group goes on with what it has begun. So its first member writes
its start down, once. Partitions that come later are read from their own start on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from coldstream.errors import CorruptionError
from coldstream.groups.group_items import VERSION, content_of, source_of
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import ShardStart, readable_version, shard_starts
from coldstream.manifest.spec import AtOffset, OffsetSpec
from coldstream.manifest.state_item import StateItem
from coldstream.units import Offset

START = "start"
"""The key of its item: after the positions, so that a look at the members does not read it."""


@dataclass(frozen=True, slots=True)
class GroupStart:
    """The partitions that a group began with, by number: the offset, or None for what its members are told.

    Of the numbers below `partitions` the group reads no others.
    """

    partitions: int
    begins: Mapping[int, Offset | None]

    @classmethod
    def of(cls, found: ShardMap, start: ShardStart) -> Self:
        """Return the start of a group that begins now."""
        begins = {
            number: spec.offset if isinstance(spec, AtOffset) else None
            for number, spec in shard_starts(found, start).items()
        }
        return cls(max(_readable(found)) + 1, begins)

    def specs(self, found: ShardMap, start: ShardStart) -> dict[int, OffsetSpec]:
        """Return where to begin with each partition, by number, without those of versions that are not bound yet."""
        specs: dict[int, OffsetSpec] = {}
        for number in sorted(_readable(found)):
            if number >= self.partitions:
                specs[number] = AtOffset(found.partitions[number].start)
            elif number in self.begins:
                specs[number] = _spec(number, self.begins[number], start)
        return specs

    def to_item(self, partition: str) -> StateItem:
        """Encode it; it is written once."""
        begins = [[number, offset] for number, offset in sorted(self.begins.items())]
        content = {"version": VERSION, "partitions": self.partitions, "begins": begins}
        return StateItem(partition, START, 1, json.dumps(content, separators=(",", ":")).encode())

    @classmethod
    def from_item(cls, item: StateItem) -> Self:
        """Decode it. Raises CorruptionError."""
        content = content_of(item)
        try:
            partitions, begins = content["partitions"], content["begins"]
            if not isinstance(partitions, int) or not isinstance(begins, list):
                raise TypeError("the wrong types")
            offsets = {int(number): None if offset is None else Offset(int(offset)) for number, offset in begins}
        except (KeyError, TypeError, ValueError) as err:
            raise CorruptionError(source_of(item), 0, f"malformed start of a group: {err}") from err
        return cls(partitions, offsets)


def _readable(found: ShardMap) -> set[int]:
    return {number for one in found.versions[: readable_version(found).version] for number in one.partitions}


def _spec(number: int, offset: Offset | None, start: ShardStart) -> OffsetSpec:
    if offset is not None:
        return AtOffset(offset)
    return AtOffset(start.offsets.get(number, Offset(0))) if isinstance(start, ShardPosition) else start
