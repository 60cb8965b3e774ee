"""From a position in a sharded stream to the ranges of its partitions, some partitions a request, all in turn.

A request asks at most `PARTITIONS_AT_ONCE` partitions, each as a query of its own, and gives each the same part of the
bounds. The next request goes on with the partition after the last one that was answered, so none starves. The walk is
over once all of them in a row had nothing more: then each is at its tail, or waits for what is not there yet.

In the order of keys, a partition is asked for nothing at or past its limit (`KeyOrder`). Limits move with each request,
not within one: everything in one answer may be read at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from coldstream.errors import InvalidQueryError, NotPermittedError, StreamNotFoundError
from coldstream.manifest.key_order import KeyOrder
from coldstream.manifest.shard_map import Lineage, Partition, ShardMap
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import (
    ShardScope,
    check_position,
    last_seal,
    readable_version,
    shard_starts,
    version_after,
    version_at,
)
from coldstream.manifest.spec import FIRST, AtEnd, AtOffset, AtTimestamp
from coldstream.resolve.answer import Answer, Bounds, Continue, RangesQuery
from coldstream.resolve.super_answer import PartitionAnswer, SuperAnswer, SuperOrder, SuperQuery
from coldstream.resolve.super_cursor import SuperCursor
from coldstream.units import Offset

PARTITIONS_AT_ONCE = 32
THREADS = 16

Ask = Callable[[RangesQuery], Answer]


def super_ranges(
    found: ShardMap, query: SuperQuery, ask: Ask, may_read: Callable[[str, str], bool] | None
) -> SuperAnswer:
    """Answer for some partitions of a map. Cost: at most 32 queries of `ask`, 16 at the same time.

    Raises NotPermittedError for a partition whose turn it is and that must not be read, InvalidQueryError for a
    position or cursor of another map.
    """
    walk = _PartitionWalk.begin(found, query)
    turns = walk.turns(min(PARTITIONS_AT_ONCE, query.bounds.max_ranges))
    for turn in turns:
        if may_read is not None and not may_read(found.vhost, turn.partition.name):
            raise NotPermittedError(f"reading stream {turn.partition.name!r} in vhost {found.vhost!r} is not permitted")
    answers = _ask_all(found, query, [turn for turn in turns if turn.is_asked], ask)
    ranges_left, bytes_left = query.bounds.max_ranges, query.bounds.max_bytes
    given: list[PartitionAnswer] = []
    for turn in turns:
        number = turn.partition.number
        if turn.is_asked:
            one = walk.answered(turn, answers[number])
            size_bytes = sum(part.data_bytes for part in one.ranges)
            is_first = ranges_left == query.bounds.max_ranges
            if one.ranges and not is_first and (len(one.ranges) > ranges_left or size_bytes > bytes_left):
                walk.turn = number
                break
            ranges_left -= len(one.ranges)
            bytes_left -= size_bytes
            is_released = walk.limit(number) != turn.limit
            has_more = one.gap is not None or (one.tail is None and (one.waits_for is None or is_released))
            walk.take(one, has_more=has_more)
        elif walk.limit(number) != turn.limit:
            # What it waited for was read just now.
            walk.turn = number
            break
        else:
            one = walk.waiting(turn)
            walk.take(one, has_more=False)
        given.append(one)
        if walk.is_over:
            break
    return walk.answer(given)


@dataclass(frozen=True, slots=True)
class _PartitionTurn:
    """A partition whose turn it is. `offset` is None if the start is not found yet."""

    partition: Partition
    offset: Offset | None
    limit: Offset | None
    edge: Lineage | None
    spec: AtEnd | AtTimestamp | AtOffset

    @property
    def is_asked(self) -> bool:
        return self.offset is None or self.limit is None or self.offset < self.limit


@dataclass(slots=True)
class _PartitionWalk:
    """A walk through a map: `offsets` are the next ones, by number, of the partitions in which the start was found."""

    found: ShardMap
    order: SuperOrder
    start: AtEnd | AtTimestamp
    version: int
    turn: int
    quiet: int
    offsets: dict[int, Offset]
    scope: ShardScope = field(init=False)
    keys: KeyOrder = field(init=False)
    children: dict[int, list[Lineage]] = field(init=False)

    def __post_init__(self) -> None:
        self.scope = ShardScope.of(self.found, self.version, self.offsets)
        for number, offset in self.scope.begins.items():
            self.offsets.setdefault(number, offset)
        if self.start == FIRST:
            for number in self.scope.numbers:
                self.offsets.setdefault(number, Offset(0))
        self.keys = KeyOrder(self.found, self.offsets)
        for number in self.scope.left_out:
            self.keys.finish(number)
        self.children = {}
        for edge in self.found.lineage:
            self.children.setdefault(edge.parent, []).append(edge)

    @classmethod
    def begin(cls, found: ShardMap, query: SuperQuery) -> _PartitionWalk:
        match query.start:
            case Continue(text):
                cursor = SuperCursor.from_text(text, found.vhost, found.name)
                if max(cursor.offsets, default=0) >= len(found.partitions) or cursor.version > found.newest.version:
                    raise InvalidQueryError("cursor", "is of another map of this name")
                # What was quiet may not be any more after a change of the map.
                quiet = cursor.quiet if cursor.revision == found.revision else 0
                return cls(found, cursor.order, cursor.start, cursor.version, cursor.turn, quiet, dict(cursor.offsets))
            case ShardPosition() as position:
                check_position(found, position)
                return cls(found, query.order, FIRST, version_at(found, position), 0, 0, dict(position.offsets))
            case start:
                return cls(found, query.order, start, version_at(found, start), 0, 0, _known_offsets(found, start))

    def turns(self, most: int) -> list[_PartitionTurn]:
        """Return the partitions whose turn it is, each once: until `most` of them are asked."""
        numbers = self.scope.numbers
        begin = next((index for index, number in enumerate(numbers) if number >= self.turn), 0)
        turns: list[_PartitionTurn] = []
        asked = 0
        for number in numbers[begin:] + numbers[:begin]:
            offset = self.offsets.get(number)
            spec = self.start if offset is None else AtOffset(offset) if offset else FIRST
            turn = _PartitionTurn(self.found.partitions[number], offset, self.limit(number), self.edge(number), spec)
            if turn.is_asked and asked == most:
                break
            asked += turn.is_asked
            turns.append(turn)
        return turns

    def limit(self, number: int) -> Offset | None:
        return None if self.order is SuperOrder.ARRIVAL else self.keys.limit(number)

    def answered(self, turn: _PartitionTurn, answer: Answer | None) -> PartitionAnswer:
        """Return what may be read of an answer; None is that of a partition without an archive."""
        partition = turn.partition
        if answer is None:
            return self._unknown(turn)
        begin, ranges, gap, tail = turn.offset, answer.ranges, answer.gap, answer.tail
        if begin is None:
            begin = ranges[0].first_offset if ranges else gap.first_offset if gap is not None else tail or Offset(0)
        end = ranges[-1].next_offset if ranges else begin
        end = max(begin, end, Offset(0) if gap is None else gap.next_offset, tail or Offset(0))
        one = PartitionAnswer(
            partition.number, partition.name, begin, end, answer.stream, ranges, gap, tail, answer.floor
        )
        limit = turn.limit
        if limit is None or end <= limit:
            return replace(one, limit=limit)
        return replace(
            one,
            next_offset=max(begin, limit),
            ranges=tuple(part for part in ranges if begin < limit and part.first_offset < limit),
            gap=gap if gap is not None and begin < limit and gap.first_offset < limit else None,
            tail=None,
            limit=limit,
            waits_for=turn.edge,
        )

    def waiting(self, turn: _PartitionTurn) -> PartitionAnswer:
        """Return the answer for a partition at its limit."""
        assert turn.offset is not None
        number = turn.partition.number
        return PartitionAnswer(
            number, turn.partition.name, turn.offset, turn.offset, limit=turn.limit, waits_for=turn.edge
        )

    def _unknown(self, turn: _PartitionTurn) -> PartitionAnswer:
        """Return the answer for a partition that the archive does not know yet, or that was deleted from it."""
        partition = turn.partition
        begin = end = turn.offset or Offset(0)
        if partition.incarnation is not None:
            # It was archived and is gone: nobody can read it any more, so nobody may wait for it.
            seals = [edge.seal for edge in self.children.get(partition.number, ()) if edge.seal is not None]
            end = max((begin, *seals))
        return PartitionAnswer(partition.number, partition.name, begin, end, tail=end, limit=turn.limit)

    def take(self, one: PartitionAnswer, *, has_more: bool) -> None:
        """Go on after an answer."""
        was = self.offsets.get(one.number, Offset(0))
        self.offsets[one.number] = one.next_offset
        self.keys.read_to(one.number, one.next_offset)
        seals = (edge.seal for edge in self.children.get(one.number, ()))
        is_released = any(seal is not None and was < seal <= one.next_offset for seal in seals)
        self.quiet = 0 if has_more else 1 if is_released else self.quiet + 1
        later = (number for number in self.scope.numbers if number > one.number)
        self.turn = next(later, self.scope.numbers[0])

    @property
    def is_over(self) -> bool:
        return self.quiet >= len(self.scope.numbers)

    def answer(self, given: Sequence[PartitionAnswer]) -> SuperAnswer:
        found = self.found
        is_found = all(number in self.offsets for number in self.scope.numbers)
        version = version_after(found, self.version, self.offsets)
        cursor = SuperCursor(self.order, self.start, version, found.revision, self.turn, self.quiet, self.offsets)
        return SuperAnswer(
            found.vhost,
            found.name,
            found.revision,
            self.order,
            tuple(given),
            ShardPosition(version, self.offsets) if is_found else None,
            None if self.is_over else cursor.to_text(found.vhost, found.name),
        )

    def edge(self, number: int) -> Lineage | None:
        if self.order is SuperOrder.ARRIVAL:
            return None
        return min(self.keys.waits_for(number), key=lambda edge: edge.child_from, default=None)


def _known_offsets(found: ShardMap, start: AtEnd | AtTimestamp) -> dict[int, Offset]:
    """Return what a start says of partitions without looking for it, by number."""
    starts = shard_starts(found, start)
    offsets = {number: spec.offset for number, spec in starts.items() if isinstance(spec, AtOffset)}
    if isinstance(start, AtEnd) and start != FIRST:
        ended = {number for one in found.versions[: readable_version(found).version] for number in one.partitions}
        # As the last and the next message of the whole are not there any more.
        offsets |= {number: last_seal(found, number) or Offset(0) for number in ended - starts.keys()}
    return offsets


def _ask_all(found: ShardMap, query: SuperQuery, turns: Sequence[_PartitionTurn], ask: Ask) -> dict[int, Answer | None]:
    if not turns:
        return {}
    share = Bounds(
        max(1, query.bounds.max_ranges // len(turns)),
        max(1, query.bounds.max_bytes // len(turns)),
        query.bounds.range_bytes,
    )
    earlier = {(one.name, one.incarnation) for one in found.partitions if one.incarnation is not None}

    def answer(turn: _PartitionTurn) -> Answer | None:
        partition = turn.partition
        asked = RangesQuery(found.vhost, partition.name, turn.spec, partition.incarnation, share, query.precise)
        try:
            answered = ask(asked)
        except StreamNotFoundError:
            return None
        # A name that was declared again, and is not archived yet, still means the partition before.
        is_earlier = partition.incarnation is None and (partition.name, answered.stream.incarnation) in earlier
        return None if is_earlier else answered

    with ThreadPoolExecutor(min(THREADS, len(turns)), thread_name_prefix="partitions") as pool:
        answers = list(pool.map(answer, turns))
    return {turn.partition.number: one for turn, one in zip(turns, answers, strict=True)}
