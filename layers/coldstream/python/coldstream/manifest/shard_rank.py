"""Ranks: a number for each stretch of a partition, so that rank, then offset, is the order of each key's messages.

A partition is cut where it comes after another one (`child_from`). From there on its rank is above the ranks of that
parent below the seal; before, and in a partition that lives on after a seal, it stays as it was. So where the messages
of a key go from one partition to another the rank grows, and within a partition it never falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.manifest.shard_map import Lineage, ShardMap
from coldstream.units import MAX_OFFSET, Offset


@dataclass(frozen=True, slots=True)
class RankedStretch:
    """Offsets of a partition, half-open, and their rank. The last stretch of a partition ends with all offsets."""

    number: int
    first_offset: Offset
    next_offset: Offset
    rank: int


def ranked_stretches(found: ShardMap) -> Mapping[int, tuple[RankedStretch, ...]]:
    """Return the stretches of each partition, by number, in the order of their offsets."""
    return _Ranks(found).stretches


class _Ranks:
    def __init__(self, found: ShardMap) -> None:
        self._parents: dict[int, list[Lineage]] = {}
        for edge in found.lineage:
            self._parents.setdefault(edge.child, []).append(edge)
        self._cuts = {
            number: sorted({Offset(0), *(edge.child_from for edge in self._parents.get(number, ()))})
            for number in range(len(found.partitions))
        }
        self._ranks: dict[tuple[int, int], int] = {}
        ends = Offset(MAX_OFFSET + 1)
        self.stretches = {
            number: tuple(
                RankedStretch(number, first, after, self._rank(number, index))
                for index, (first, after) in enumerate(zip(cuts, [*cuts[1:], ends], strict=True))
            )
            for number, cuts in self._cuts.items()
        }

    def _rank(self, number: int, index: int) -> int:
        """Return the rank of a stretch. Changes come one after another, so lineage has no circle of stretches."""
        known = self._ranks.get((number, index))
        if known is None:
            cut = self._cuts[number][index]
            known = 0 if index == 0 else self._rank(number, index - 1)
            for edge in self._parents.get(number, ()):
                if edge.child_from == cut:
                    known = max(known, 1 + self._rank(edge.parent, self._last_below(edge)))
            self._ranks[number, index] = known
        return known

    def _last_below(self, edge: Lineage) -> int:
        cuts = self._cuts[edge.parent]
        return max((index for index, cut in enumerate(cuts) if edge.seal is None or cut < edge.seal), default=0)
