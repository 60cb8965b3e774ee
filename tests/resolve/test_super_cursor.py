"""Cursors of sharded streams that no answer has given: refused, or answered within the map, and never an error."""

from __future__ import annotations

import random

from coldstream.errors import InvalidQueryError, StreamNotFoundError
from coldstream.manifest.shard_changes import bound, doubled, first_map
from coldstream.manifest.shard_map import Partition, ShardHash, ShardKind, ShardMap
from coldstream.manifest.spec import FIRST, AtEnd, AtTimestamp
from coldstream.resolve.answer import Answer, Continue, RangesQuery
from coldstream.resolve.super_answer import SuperOrder, SuperQuery
from coldstream.resolve.super_cursor import SuperCursor
from coldstream.resolve.super_ranges import super_ranges
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

NOW = TimestampMs(1_000)
STARTS = (FIRST, AtEnd("last"), AtEnd("next"), AtTimestamp(TimestampMs(-5)), AtTimestamp(TimestampMs(2**62)))
HUGE = 2**64 - 1


def test_a_hostile_cursor_is_refused_or_answered_within_the_map() -> None:
    rng, found = random.Random(1), grown()
    answered = refused = 0
    for _ in range(3000):
        text = list(hostile(rng, found).to_text("/", "orders"))
        if rng.random() < 0.5:
            text[rng.randrange(len(text))] = rng.choice("abcXYZ09-_=. é")
        try:
            answer = super_ranges(found, SuperQuery("/", "orders", Continue("".join(text))), nothing, None)
        except InvalidQueryError:
            refused += 1
        else:
            answered += 1
            assert {one.number for one in answer.partitions} <= set(range(len(found.partitions)))
    assert answered > 100
    assert refused > 100


def hostile(rng: random.Random, found: ShardMap) -> SuperCursor:
    offsets = {n: Offset(rng.choice([0, 5, MAX_OFFSET])) for n in range(10) if rng.random() < 0.6}
    return SuperCursor(
        rng.choice(list(SuperOrder)),
        rng.choice(STARTS),
        rng.choice([1, 2, 2, 3, HUGE]),
        rng.choice([0, found.revision, HUGE]),
        rng.choice([0, 7, 8, HUGE]),
        rng.choice([0, 7, 8, HUGE]),
        offsets,
    )


def grown() -> ShardMap:
    names = [Partition(0, f"orders-{at}") for at in range(8)]
    kind = ShardKind.SUPER_STREAM
    first = first_map("/", "orders", kind, ShardHash.MURMUR3, partitions=names[:4], definition="", at=NOW)
    return bound(doubled(bound(first, NOW), names[4:], "", NOW), NOW)


def nothing(query: RangesQuery) -> Answer:
    raise StreamNotFoundError(f"stream {query.name!r} is not archived")
