"""Follow a sharded stream: a follower for each partition of all versions, and for those that it grows by."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from coldstream.consumer.batch import BatchItem, ChunkBatch, Give, ReachedOffset
from coldstream.consumer.gate import Gate
from coldstream.consumer.items import BatchItems
from coldstream.consumer.makers import FollowerMaker
from coldstream.consumer.shard_maps import ShardMapSource
from coldstream.errors import (
    ColdstreamError,
    IncarnationError,
    InvalidInputError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.manifest.shard_map import MAP_EVERY_S, Partition, ShardKind, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import ShardStart, last_seal, readable_version, shard_starts
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.units import Offset

log = logging.getLogger(__name__)

Spawn = Callable[[Callable[[], Awaitable[None]]], asyncio.Task[None]]
"""Runs work as a task of the consumer, whose errors end it."""


class ShardedStream:
    """The followers of a sharded stream, all of which give to one gate."""

    def __init__(
        self,
        found: ShardMap,
        start: ShardStart,
        *,
        gate: Gate,
        maker: FollowerMaker,
        items: BatchItems,
        maps: ShardMapSource,
        spawn: Spawn,
        archive_wait_s: float,
    ) -> None:
        self._map = found
        self._start = start
        self._gate = gate
        self._maker = maker
        self._items = items
        self._maps = maps
        self._spawn = spawn
        self._archive_wait_s = archive_wait_s
        self._known: set[int] = set()
        self._next: dict[int, Offset] = {}

    @property
    def position(self) -> ShardPosition | None:
        """Where to go on, None until the starts of all partitions are known."""
        offsets = self._items.offsets
        return None if offsets is None else ShardPosition(readable_version(self._map).version, offsets)

    def begin(self) -> None:
        """Start the followers, in the running event loop. Raises InvalidInputError for a position of another map."""
        self._check_start()
        starts = shard_starts(self._map, self._start)
        self._maker.sharing = max(1, len(starts))
        self._items.expect(())
        for number in self._readable():
            self._known.add(number)
            if number not in starts:
                # Before the first follower gives anything: it may be a child of one that is left out.
                self._gate.finish(number)
        if isinstance(self._start, AtEnd) and self._start.which != "first":
            for number in self._known - starts.keys():
                self._items.pass_over(number, last_seal(self._map, number) or Offset(0))
        self._add(starts)
        self._spawn(self._gate.run)
        self._spawn(self._follow_map)

    def _check_start(self) -> None:
        if isinstance(self._start, ShardPosition):
            foreign = [number for number in self._start.offsets if number >= len(self._map.partitions)]
            if foreign or self._start.version > len(self._map.versions):
                raise InvalidInputError("position", f"{self._start} is not of {self._map}")

    async def _follow_map(self) -> None:
        """Ask for the map now and then, and add the partitions that it has grown by."""
        is_away = False
        while True:
            await asyncio.sleep(MAP_EVERY_S * random.uniform(0.8, 1.2))  # noqa: S311  jitter, not a secret
            try:
                found = await self._maps.ask()
            except ColdstreamError as err:
                # Once an outage. Reading goes on: a change is rare, and the resolver may be away for days.
                if not is_away:
                    log.warning("%s: the map cannot be asked for, so that no change of it is seen: %s", self._map, err)
                is_away = True
            else:
                if is_away:
                    log.warning("%s: the map can be asked for again", self._map)
                is_away = False
                self._use(found)

    def _use(self, found: ShardMap | None) -> None:
        if found is None or found.revision <= self._map.revision:
            return
        before = [one.name for one in self._map.partitions]
        if [one.name for one in found.partitions[: len(before)]] != before:
            # Nothing is ever taken out of a map, so numbers mean other partitions now.
            raise IncarnationError(f"{self._map}: its map was replaced by another one, at revision {found.revision}")
        self._map = found
        added = [number for number in self._readable() if number not in self._known]
        self._known.update(added)
        self._maker.sharing = max(self._maker.sharing, len(self._known))
        # All of it is younger than the beginning of this reading, but for a replay of what was read.
        self._add({number: AtOffset(found.partitions[number].start) for number in added})
        # After the new partitions are known: their edges come with this map.
        self._gate.use(found)

    def _readable(self) -> list[int]:
        versions = self._map.versions[: readable_version(self._map).version]
        return list(dict.fromkeys(number for version in versions for number in version.partitions))

    def _add(self, starts: dict[int, OffsetSpec]) -> None:
        for number, spec in starts.items():
            offset = _offset(spec)
            partition = self._map.partitions[number]
            self._items.expect_partition(number, self._label(partition), offset)
            self._gate.add(number, offset or Offset(0))
        for number, spec in starts.items():
            self._begin_following(number, partial(self._follow, number, spec))

    def _begin_following(self, _number: int, work: Callable[[], Awaitable[None]]) -> None:
        self._spawn(work)

    def _label(self, partition: Partition) -> str:
        """Return the partition's name; with its number, if the name has gone to another partition since."""
        is_newest = self._map.partition_named(partition.name) is partition
        return partition.name if is_newest else f"{partition.name}#{partition.number}"

    async def _follow(self, number: int, spec: OffsetSpec) -> None:
        offset = _offset(spec)
        if offset is not None:
            # A start that has to be looked for is looked for now: later, the end would be another.
            await self._gate.ready(number, offset)
        partition = self._map.partitions[number]
        give = partial(self._give, number)
        if not self._is_archived_only(partition):
            try:
                await self._maker.stream(
                    partition.name,
                    spec,
                    give,
                    incarnation=partition.incarnation,
                    fixes_start=isinstance(spec, AtTimestamp),
                    on_away=partial(self._gate.away, number),
                ).run()
            except (StreamNotFoundError, IncarnationError):
                if not await self._is_dropped(number):
                    raise
        await self._follow_archived(self._map.partitions[number], spec, give)
        await self._finish(number)

    async def _finish(self, number: int) -> None:
        """Let those go on that wait for a partition of which nothing is left to read."""
        self._gate.finish(number)

    async def _follow_archived(self, partition: Partition, spec: OffsetSpec, give: Give) -> None:
        number = partition.number
        is_over = self._map.kind is not ShardKind.QUEUES or self._is_gone(partition)
        if is_over and partition.incarnation is None and self._map.partition_named(partition.name) is not partition:
            # The archive's newest incarnation of that name is another partition's.
            log.warning("%s: partition %d, %r, was never archived", self._map, number, partition.name)
            return
        await self._maker.archived(
            partition.name,
            AtOffset(self._next[number]) if number in self._next else spec,
            give,
            incarnation=partition.incarnation,
            is_over=is_over,
            end=last_seal(self._map, number),
        ).run()

    async def _give(self, number: int, item: BatchItem) -> None:
        await self._gate.give(replace(item, partition=number))
        match item:
            case ChunkBatch(chunks=chunks):
                self._next[number] = chunks[-1].header.next_offset
            case ReachedOffset(offset=offset):
                self._next[number] = max(offset, self._next.get(number, Offset(0)))
            case _:
                self._next[number] = item.gap.next_offset

    def _is_archived_only(self, partition: Partition) -> bool:
        return self._map.kind is ShardKind.QUEUES or self._is_gone(partition)

    def _is_gone(self, partition: Partition) -> bool:
        return partition.deleted_at is not None or self._map.partition_named(partition.name) is not partition

    async def _is_dropped(self, number: int) -> bool:
        """Tell whether a partition that the broker does not know was dropped by a change, of which the map may tell."""
        try:
            self._use(await self._maps.wait(self._archive_wait_s))
        except UnavailableError as err:
            log.warning("%s: the map cannot be asked for: %s", self._map, err)
        partition = self._map.partitions[number]
        return self._is_gone(partition) or number not in self._map.newest.partitions


def _offset(spec: OffsetSpec) -> Offset | None:
    """Return the offset where a spec begins, None if that is to be looked for."""
    match spec:
        case AtOffset(offset):
            return offset
        case AtEnd("first"):
            return Offset(0)
        case _:
            return None
