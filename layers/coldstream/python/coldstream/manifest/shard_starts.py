"""Which partitions of a sharded stream a reader reads, and where it begins with each.

An *era* begins with version 1, and with each version of new partitions alone that hold a replay of all that came before
(`start` > 0). It is *complete* once it is bound and nobody writes to an earlier era any more: all edges from there are
sealed. So a reader begins in one era, and goes on into later ones after their replays, at each partition's `start`.
Each message is read once. Versions that are not bound yet are left out.

    first          the newest complete era, each partition from offset 0 on
    a timestamp    the complete era of that time, as a replay's messages have the time of the replay
    last, next     what is or may still be written to: the newest version, and parents without a seal
    an offset      as `first`, each partition from that offset on
    a position     the era of its version, or an earlier one of which it names a partition that it has not read
                   to its seals
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from coldstream.errors import InvalidQueryError
from coldstream.manifest.shard_map import MapVersion, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset

ShardStart = OffsetSpec | ShardPosition
"""Where to begin reading a sharded stream."""

_NOTHING: Mapping[int, Offset] = {}


@dataclass(frozen=True, slots=True)
class ShardScope:
    """The partitions that are read by a reader at `version`, and where those begin that were not begun.

    `numbers` are in order. `left_out` are the partitions of which a replay is read instead. `begins` has the partitions
    of versions after `version`: after their replay.
    """

    version: int
    numbers: tuple[int, ...]
    left_out: frozenset[int]
    begins: Mapping[int, Offset]

    @classmethod
    def of(cls, found: ShardMap, version: int, offsets: Mapping[int, Offset] = _NOTHING) -> Self:
        """Return what is read of a map by a reader that has come to `version`, and to `offsets`, by number.

        A later revision of the map adds partitions, and takes one out only once it is read to its seals.
        """
        eras = _eras(found)
        base = _base_era(found, version, offsets)
        since = first_versions(found)
        numbers = tuple(sorted(number for number, era in eras.items() if era >= base))
        begins = {number: found.partitions[number].start for number in numbers if since[number] > version}
        return cls(version, numbers, frozenset(eras) - frozenset(numbers), begins)


def readable_version(found: ShardMap) -> MapVersion:
    """Return the newest version that is bound, so that producers use it; the first one if none is."""
    return next((one for one in reversed(found.versions) if one.bound_at is not None), found.versions[0])


def version_at(found: ShardMap, start: ShardStart = FIRST) -> int:
    """Return the version at which a reader begins: partitions of later ones are read from their own `start` on."""
    readable = readable_version(found).version
    replays = _replays(found)
    match start:
        case ShardPosition(version, offsets):
            readable = min(version, readable)
            base = _base_era(found, version, offsets)
        case AtEnd("last" | "next"):
            return readable
        case _:
            eras = (era for era in replays if _is_complete(found, era) and _is_before(found, era, start))
            base = max(eras, default=1)
    return min([readable, *(era - 1 for era in replays if era > base)])


def shard_starts(found: ShardMap, start: ShardStart) -> dict[int, OffsetSpec]:
    """Return where to begin with each partition that is read, by number."""
    offsets = start.offsets if isinstance(start, ShardPosition) else _NOTHING
    scope = ShardScope.of(found, version_at(found, start), offsets)
    if isinstance(start, AtEnd) and start != FIRST:
        written = {*readable_version(found).partitions, *(edge.parent for edge in found.unsealed)}
        return {number: start for number in scope.numbers if number in written}
    return {number: _spec(start, number, scope.begins.get(number)) for number in scope.numbers}


def last_seal(found: ShardMap, number: int) -> Offset | None:
    """Return up to where a partition that is no parent of an unsealed one was written; None if no seal tells."""
    seals = [edge.seal for edge in found.lineage if edge.parent == number]
    return None if None in seals else max((seal for seal in seals if seal is not None), default=None)


def check_position(found: ShardMap, position: ShardPosition) -> None:
    """Raise InvalidQueryError for a position of another map: a version or a partition that this one does not have."""
    if position.version > found.newest.version:
        problem = f"is of version {position.version}, and {found} is at version {found.newest.version}"
        raise InvalidQueryError("position", problem)
    unknown = max(position.offsets, default=0)
    if unknown >= len(found.partitions):
        raise InvalidQueryError("position", f"names partition {unknown}, and {found} has {len(found.partitions)}")


def version_after(found: ShardMap, version: int, offsets: Mapping[int, Offset]) -> int:
    """Return the version that a reader at `version` has come to: past a replay once all before it is read.

    `offsets` are next offsets by number; a partition that is not there was not begun.
    """
    eras = _eras(found)
    base = _base_era(found, version, offsets)
    for era in _replays(found):
        if era <= version:
            continue
        before = [number for number, of in eras.items() if base <= of < era]
        # Only a complete one: at its version, a reader without these offsets would begin with the replay.
        if not _is_complete(found, era) or not all(_is_read(found, one, offsets.get(one, Offset(0))) for one in before):
            return era - 1
    return readable_version(found).version


def first_versions(found: ShardMap) -> dict[int, int]:
    """Return the version in which each partition appears first."""
    since: dict[int, int] = {}
    for version in found.versions:
        for number in version.partitions:
            since.setdefault(number, version.version)
    return since


def _replays(found: ShardMap) -> list[int]:
    """Return the eras but the first: the versions up to the readable one that hold a replay of all before."""
    versions = found.versions[: readable_version(found).version]
    return [
        after.version
        for before, after in pairwise(versions)
        if not {*before.partitions} & {*after.partitions}
        and any(found.partitions[number].start for number in after.partitions)
    ]


def _eras(found: ShardMap) -> dict[int, int]:
    """Return the era of each partition that may be read, by number."""
    replays = _replays(found)
    readable = readable_version(found).version
    return {
        number: max((era for era in replays if era <= since), default=1)
        for number, since in first_versions(found).items()
        if since <= readable
    }


def _base_era(found: ShardMap, version: int, offsets: Mapping[int, Offset]) -> int:
    """Return the era that a reader at a version, and at offsets, reads first."""
    eras = _eras(found)
    base = max((era for era in _replays(found) if era <= version and _is_complete(found, era)), default=1)
    named = {number: eras[number] for number in offsets if number in eras}
    if base not in named.values():
        return min([base, *named.values()])
    return min(era for number, era in named.items() if era >= base or not _is_read(found, number, offsets[number]))


def _is_complete(found: ShardMap, era: int) -> bool:
    # While old producers may write, what they write is in no replay.
    eras = _eras(found)
    return all(eras[edge.parent] >= era for edge in found.unsealed)


def _is_before(found: ShardMap, era: int, start: OffsetSpec) -> bool:
    # A replay that is bound after a time holds messages of before and after it alike.
    bound_at = found.versions[era - 1].bound_at
    return not isinstance(start, AtTimestamp) or (bound_at is not None and bound_at <= start.timestamp)


def _is_read(found: ShardMap, number: int, offset: Offset) -> bool:
    seal = last_seal(found, number)
    return seal is not None and offset >= seal


def _spec(start: ShardStart, number: int, begin: Offset | None) -> OffsetSpec:
    match start:
        case ShardPosition(offsets=offsets):
            return AtOffset(offsets.get(number, begin or Offset(0)))
        case AtOffset(offset) if begin is not None:
            return AtOffset(max(begin, offset))
        case _:
            return start if begin is None else AtOffset(begin)
