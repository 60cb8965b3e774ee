"""Follow the partitions of a sharded stream that a member of a group owns, as long as it owns them.

A *tenure* is one run of a follower: from when a partition is gained, or its lease is renewed after it was over, until
either ends. What an earlier tenure has put into the queue is dropped when the caller comes to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from coldstream.consumer.batch import BatchItem, ChunkBatch, ReachedOffset
from coldstream.consumer.group_gate import GroupKeyGate
from coldstream.consumer.sharded import ShardedStream
from coldstream.errors import ConflictError, NotOwnerError, OutcomeUnknownError, UnavailableError
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.groups.group_start import GroupStart
from coldstream.groups.member import GroupAssignment, GroupMember
from coldstream.manifest.shard_map import ShardMap
from coldstream.manifest.shard_starts import last_seal, readable_version
from coldstream.manifest.spec import AtEnd, AtOffset, OffsetSpec
from coldstream.units import Offset

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
"""How often to see whether the caller is done with what is to be given back, and whether a lease is renewed."""

COMMITTED_EVERY_S = 1.0
"""How often to ask what the group has committed, while a partition waits for that."""


class GroupedStream(ShardedStream):
    """The followers of one member. `begin` starts it; it leaves the group when its tasks are cancelled."""

    def __init__(self, found: ShardMap, *args: Any, group: ConsumerGroup, **options: Any) -> None:
        super().__init__(found, *args, **options)
        self._member = GroupMember(group, found.vhost, found.name)
        self._starts: dict[int, OffsetSpec] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._epochs: dict[int, int] = {}
        self._tenures: dict[int, int] = {}
        self._leaving: frozenset[int] = frozenset()
        self._stored: dict[int, Offset] = {}
        self._group_start = GroupStart(0, {})
        self._unpinned: set[int] = set()
        self._pins: dict[int, Offset] = {}
        self._count = 0
        self._items.may_give = self._may_give

    @property
    def assignment(self) -> tuple[str, ...]:
        """The names of the partitions that this member owns at this moment, by number."""
        owned = (number for number in sorted(self._tenures) if self._member.owns(number))
        return tuple(self._map.partitions[number].name for number in owned)

    def begin(self) -> None:
        """Take part in the group, in the running event loop."""
        self._check_start()
        self._items.expect(())
        self._spawn(self._gate.run)
        self._spawn(self._take_part)

    def number_of(self, stream: str) -> int | None:
        """Return the number of the newest partition of a name, None if there is none."""
        partition = self._map.partition_named(stream)
        return None if partition is None else partition.number

    async def commit(self, number: int, offset: Offset) -> None:
        """Commit the offset after a partition's last message that is done. Raises NotOwnerError, UnavailableError."""
        if number not in self._epochs:
            raise NotOwnerError(self._member.name.group, number)
        await self._member.commit(number, offset)
        self._stored[number] = max(offset, self._stored.get(number, Offset(0)))

    async def _begin_group(self) -> None:
        """Begin where the group began: with the same partitions, which a map may leave out that has changed since."""
        self._group_start = await self._member.group_start(GroupStart.of(self._map, self._start))
        self._use_starts()

    def _use_starts(self) -> None:
        self._starts = self._group_start.specs(self._map, self._start)
        if isinstance(self._gate, GroupKeyGate):
            for number in range(self._group_start.partitions):
                if number not in self._group_start.begins:
                    self._gate.leave_out(number)
        self._maker.sharing = max(1, len(self._starts))
        newest = set(readable_version(self._map).partitions)
        earlier = [n for n in self._starts if n not in newest and last_seal(self._map, n) is not None]
        self._member.use_partitions(self._starts, earlier)

    async def _take_part(self) -> None:
        async with self._member as member:
            await self._begin_group()
            self._spawn(self._follow_map)
            looking = self._spawn(self._look_after)
            try:
                async for assignment in member.assignments():
                    self._assign(assignment)
            finally:
                self._tenures.clear()
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
                for task in self._tasks.values():
                    task.cancel()

    def _assign(self, assignment: GroupAssignment) -> None:
        owned = assignment.partitions
        self._leaving = assignment.leaving
        for number, epoch in list(self._epochs.items()):
            is_owned = number in owned and owned[number].epoch == epoch
            if not is_owned:
                self._stop(number)
                if number not in self._leaving:
                    del self._epochs[number]
                    self._stored.pop(number, None)
                    self._pins.pop(number, None)
                    self._unpinned.discard(number)
                    self._items.forget_partition(number)
        for number, one in owned.items():
            if number not in self._epochs:
                self._epochs[number] = one.epoch
                start = self._starts[number] if one.committed is None else AtOffset(one.committed)
                if start in (AtEnd("last"), AtEnd("next")):
                    self._unpinned.add(number)
                self._run(number, start)

    def _run(self, number: int, start: OffsetSpec) -> None:
        self._count += 1
        self._next.pop(number, None)
        # Before the tenure: what an earlier one put into the queue would count for this one.
        self._tenures[number] = self._count
        self._add({number: start})

    def _begin_following(self, number: int, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks[number] = self._spawn(work)

    def _stop(self, number: int) -> None:
        self._tenures.pop(number, None)
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()
            self._gate.drop(number)

    def _may_give(self, number: int, tenure: int) -> bool:
        """Tell whether an item is to be given out now; asked in the caller's thread."""
        if self._tenures.get(number) != tenure:
            return False
        if self._member.owns(number):
            return True
        # The lease may be over. What follows is dropped, and read again when it is renewed.
        self._tenures.pop(number, None)
        return False

    async def _give(self, number: int, item: BatchItem) -> None:
        tenure = self._tenures.get(number, 0)
        if number in self._unpinned:
            self._unpinned.discard(number)
            self._pins[number] = _begin_of(item)
        await super()._give(number, replace(item, tenure=tenure))

    async def _finish(self, number: int) -> None:
        """Have the owner commit the seal of a partition that is over, though nothing may have come up to there."""
        parents = {edge.parent for edge in self._map.lineage}
        while (seal := last_seal(self._map, number)) is None and number in parents:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(COMMITTED_EVERY_S)
        if seal is not None:
            # Through the queue: what comes before it there is not done.
            await self._give(number, ReachedOffset(self._map.partitions[number].name, seal, at_tail=True))
        await super()._finish(number)

    async def _look_after(self) -> None:
        since_s = COMMITTED_EVERY_S
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for number in self._leaving:
                if self._items.busy != number:
                    self._member.done_with(number)
            self._resume()
            since_s += LOOK_EVERY_S
            if since_s >= COMMITTED_EVERY_S:
                since_s = 0.0
                try:
                    await self._exchange()
                except (ConflictError, OutcomeUnknownError, UnavailableError) as err:
                    log.info("%s: %s", self._member.name, err)

    def _resume(self) -> None:
        """Go on where the caller is with partitions whose lease was over, and is renewed."""
        for number in self._epochs.keys() - self._tenures.keys() - self._leaving:
            if self._member.owns(number):
                reached, given = self._items.offset(number) or self._pins.get(number), self._items.given(number)
                self._stop(number)
                self._run(number, self._starts[number] if reached is None else AtOffset(reached))
                # What was given out and is not committed stays so.
                self._items.restore(number, given)

    async def _exchange(self) -> None:
        """Commit what parents have left that is no message, and learn what others have committed."""
        for number in self._pins.keys() & self._tenures.keys() - self._stored.keys():
            # `next` would be later after a restart, and what came in between would be lost.
            with suppress(NotOwnerError):
                await self.commit(number, self._pins[number])
        for number in {edge.parent for edge in self._map.lineage} & self._tenures.keys():
            reached, given = self._items.offset(number), self._items.given(number)
            stored = self._stored.get(number, Offset(0))
            if reached is not None and reached > stored and (given is None or given <= stored):
                try:
                    await self._member.commit(number, reached)
                except NotOwnerError:
                    continue
                self._stored[number] = reached
        if isinstance(self._gate, GroupKeyGate) and self._gate.holds_back:
            self._gate.committed(await self._member.committed())

    def _use(self, found: ShardMap | None) -> None:
        if found is None or found.revision <= self._map.revision:
            return
        self._map = found
        self._use_starts()
        self._gate.use(found)


def _begin_of(item: BatchItem) -> Offset:
    match item:
        case ChunkBatch(chunks=chunks, from_offset=from_offset):
            return max(Offset(chunks[0].header.chunk_id), from_offset)
        case ReachedOffset(offset=offset):
            return offset
        case _:
            return item.gap.first_offset
