"""The order of keys over the partitions of a sharded stream: up to where each may be read, as far as the others are.

A reader tells how far it has read each partition, and asks up to where it may go on with one. Nothing is held back but
what lineage says: partitions without an edge run on.

A parent that is read up to its seal is not enough: it may have got no message since its own parents were sealed, and
then its position says nothing of them. So an edge is read once the parent is, and all that came before the parent.
"""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.manifest.shard_map import Lineage, ShardMap
from coldstream.units import Offset


class KeyOrder:
    """How far the partitions of a map are read, and how far they may be. Offsets are next offsets, by number.

    `positions` are where reading begins. A partition that is `finished` holds nothing more to read below any seal:
    reading began after it.
    """

    def __init__(self, found: ShardMap, positions: Mapping[int, Offset]) -> None:
        self._positions = dict(positions)
        self._finished: set[int] = set()
        self._edges: tuple[Lineage, ...] = ()
        self._parents: dict[int, list[int]] = {}
        self._read: set[int] = set()
        self.use(found)

    def use(self, found: ShardMap) -> tuple[Lineage, ...]:
        """Go on with a later revision of the map. Return the new edges that come too late.

        Those are unread, and the child is read past `child_from` already: keys may have come out of their order.
        """
        known = len(self._edges)
        parents: dict[int, list[int]] = {}
        for index, edge in enumerate(found.lineage):
            parents.setdefault(edge.child, []).append(index)
        self._edges, self._parents = found.lineage, parents
        return tuple(
            edge
            for index, edge in enumerate(self._edges)
            if index >= known and self.position(edge.child) > edge.child_from and not self._is_read(index)
        )

    def read_to(self, number: int, offset: Offset) -> None:
        """Record that a partition is read up to an offset; an earlier one changes nothing."""
        self._positions[number] = max(offset, self._positions.get(number, Offset(0)))

    def finish(self, number: int) -> None:
        """Record that nothing of a partition below its seals is left to read."""
        self._finished.add(number)

    def position(self, number: int) -> Offset:
        """Return up to where a partition is read."""
        return self._positions.get(number, Offset(0))

    def limit(self, number: int) -> Offset | None:
        """Return the offset from which on a partition must not be read yet, None if all of it may be read."""
        return min((edge.child_from for edge in self.waits_for(number)), default=None)

    def may_read(self, number: int, offset: Offset) -> bool:
        """Tell whether a partition may be read at an offset."""
        # Not by `limit`: the first edge that holds it back says no, of 256 that a replacement may have made.
        return all(
            self._edges[index].child_from > offset or self._is_read(index) for index in self._parents.get(number, ())
        )

    def waits_for(self, number: int) -> tuple[Lineage, ...]:
        """Return the edges that hold a partition back."""
        return tuple(self._edges[index] for index in self._parents.get(number, ()) if not self._is_read(index))

    def _is_read(self, index: int) -> bool:
        """Tell whether a child need not wait for an edge any more; what is read once stays so."""
        if index in self._read:
            return True
        edge = self._edges[index]
        seal = edge.seal
        if seal is None or (edge.parent not in self._finished and self.position(edge.parent) < seal):
            return False
        # Only edges of earlier versions come before this one: a later halving makes the parent a child of its child.
        before = (one for one in self._parents.get(edge.parent, ()) if one < index)
        if not all(self._edges[one].child_from > seal or self._is_read(one) for one in before):
            return False
        self._read.add(index)
        return True
