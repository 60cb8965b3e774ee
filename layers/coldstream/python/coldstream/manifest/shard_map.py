"""The map of a sharded stream: which partitions it has had, in which version, and which one comes before which.

A sharded stream has one logical name and many partitions, each a stream (or a classic queue, archived as one). A
version lists the partitions that producers route to, in the order in which the hash counts them. A change of the number
is a new version; partitions of earlier ones stay in the map for good, as the archive keeps what they hold.

Lineage keeps the order of keys over versions. An edge says: from `child_from` on, the child may hold messages of keys
whose earlier messages are in the parent, below `seal`. So a reader that keeps the order of keys reads the parent up to
`seal` before it reads the child from `child_from` on. While `seal` is None the parent is still written by producers
that know only the earlier version.

    doubling, N to 2N      new partition i + N: parent i, from offset 0 on; partition i lives on
    halving, 2N to N       partition i, from where it ended when the change began: parent i + N, which ends
    any other change       all partitions are new, each holds a replay of all before `start`: parents are all earlier
                           ones, from `start` on

Hash mod 2N is hash mod N or that plus N, so every key has one parent in the first two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from coldstream.errors import InvalidInputError
from coldstream.manifest.stream import Incarnation, check_name
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

MAX_PARTITIONS = 1024
"""Of one version; of all versions four times as many."""

MAX_LINEAGE = 65_536
"""Edges of a map: a replacement of 256 partitions by 256 has as many."""

MAP_EVERY_S = 10.0
"""How often a reader asks for the map, give or take a fifth."""

MAP_SETTLE_S = 30.0
"""How long a change that gives messages to partitions which readers read already waits, between the map that says so
and the first such message: a reader asks twice in it, and has a few seconds left for the answer."""


class ShardKind(StrEnum):
    """What the partitions are, and what is in front of them."""

    SUPER_STREAM = "super-stream"
    """Streams, from which the clients of a super stream choose."""

    STREAMS = "streams"
    """Streams behind an exchange that chooses."""

    QUEUES = "queues"
    """Classic queues behind an exchange that chooses; the archive holds a stream for each."""


class ShardHash(StrEnum):
    """How a message gets to its partition (`coldstream.routing`)."""

    MURMUR3 = "murmur3"
    """The clients' hash of a routing key, modulo the number of partitions."""

    BINDING_KEY = "binding-key"
    """The exchange's binding with exactly the routing key."""

    MODULUS = "modulus"
    """x-modulus-hash."""

    CONSISTENT = "consistent"
    """x-consistent-hash."""

    RANDOM = "random"
    """x-random."""

    @property
    def doubles(self) -> bool:
        """Tell whether a doubled number of partitions leaves each key where it is, or takes it N further."""
        return self in (ShardHash.MURMUR3, ShardHash.MODULUS)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; `number` is its place in the map, for good. A stream that is declared again is another partition.

    `node` is the broker's node that it was placed on, None if that is the broker's choice. `weight` counts for
    x-consistent-hash alone, `binding_key` for binding keys. Messages before `start` are a replay of earlier versions.
    `incarnation` is known once the partition is archived, and has to be before it is deleted at the broker.
    """

    number: int
    name: str
    node: str | None = None
    weight: int = 1
    binding_key: str | None = None
    start: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    incarnation: Incarnation | None = None
    deleted_at: TimestampMs | None = None

    def __post_init__(self) -> None:
        check_name("partition", self.name)
        if self.weight < 1:
            raise InvalidInputError("weight", f"{self.weight} is less than 1")
        _check_offset("start", self.start)


@dataclass(frozen=True, slots=True)
class Lineage:
    """An edge: the child from `child_from` on comes after the parent up to `seal`, both offsets, both numbers."""

    child: int
    parent: int
    child_from: Offset
    seal: Offset | None = None

    def __post_init__(self) -> None:
        if self.child == self.parent:
            raise InvalidInputError("lineage", f"partition {self.child} comes after itself")
        _check_offset("child_from", self.child_from)
        _check_offset("seal", self.seal or 0)


@dataclass(frozen=True, slots=True)
class MapVersion:
    """A version: the numbers of its partitions in the order in which the hash counts them, and since when.

    `bound_at` is None until all of its partitions, and no other, are bound at the broker.
    """

    version: int
    partitions: tuple[int, ...]
    hash: ShardHash
    since: TimestampMs
    bound_at: TimestampMs | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.partitions) <= MAX_PARTITIONS:
            raise InvalidInputError("partitions", f"{len(self.partitions)} is not 1 to {MAX_PARTITIONS}")
        if len(set(self.partitions)) != len(self.partitions):
            raise InvalidInputError("partitions", "a partition is there twice")


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The map of one logical name at one revision. `definition` is the text that it was declared by (JSON)."""

    vhost: str
    name: str
    kind: ShardKind
    revision: int
    definition: str
    versions: tuple[MapVersion, ...]
    partitions: tuple[Partition, ...]
    lineage: tuple[Lineage, ...] = ()

    def __post_init__(self) -> None:
        check_name("vhost", self.vhost)
        check_name("logical name", self.name)
        if [one.version for one in self.versions] != list(range(1, len(self.versions) + 1)) or not self.versions:
            raise InvalidInputError("versions", "are not 1, 2, 3 and so on")
        if [one.number for one in self.partitions] != list(range(len(self.partitions))):
            raise InvalidInputError("partitions", "are not numbered 0, 1, 2 and so on")
        if len(self.partitions) > 4 * MAX_PARTITIONS:
            raise InvalidInputError("partitions", f"{len(self.partitions)} of all versions, of {4 * MAX_PARTITIONS}")
        if len(self.lineage) > MAX_LINEAGE:
            raise InvalidInputError("lineage", f"has {len(self.lineage)} edges, of {MAX_LINEAGE} at most")
        known = range(len(self.partitions))
        named = {number for version in self.versions for number in version.partitions}
        named |= {number for edge in self.lineage for number in (edge.child, edge.parent)}
        if any(number not in known for number in named):
            raise InvalidInputError("partitions", f"the map names {max(named)}, and has {len(known)}")

    def __str__(self) -> str:
        return f"sharded stream {self.name!r} in vhost {self.vhost!r}"

    @property
    def newest(self) -> MapVersion:
        """The version that producers are to use."""
        return self.versions[-1]

    @property
    def current(self) -> tuple[Partition, ...]:
        """The partitions of the newest version, in the order in which the hash counts them."""
        return tuple(self.partitions[number] for number in self.newest.partitions)

    @property
    def unsealed(self) -> tuple[Lineage, ...]:
        """The edges whose parent may still be written by producers of an earlier version."""
        return tuple(edge for edge in self.lineage if edge.seal is None)

    @property
    def is_changing(self) -> bool:
        """Tell whether the newest version is not yet bound, or earlier producers are still waited for."""
        return self.newest.bound_at is None or bool(self.unsealed)

    def partition_named(self, name: str) -> Partition | None:
        """Return the newest partition of a name, None if the map has none."""
        return next((one for one in reversed(self.partitions) if one.name == name), None)


def _check_offset(field: str, offset: int) -> None:
    # The offset after the greatest one is an end, too.
    if not 0 <= offset <= MAX_OFFSET + 1:
        raise InvalidInputError(field, f"{offset} is no offset")
