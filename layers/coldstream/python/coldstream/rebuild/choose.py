"""Which objects the manifest named, where several hold the same offsets. Pure.

A bucket also holds what compaction replaced and no sweep has deleted yet, and now and then an object that nobody ever
committed. An object that overlaps an erased one and is not erased itself is never taken: whatever it holds, some of its
messages are to be gone. Of the others that overlap, those are taken that

1. hold the most offsets together: nothing is missing because of an object that has to be left out;
2. then are of the highest generations, each weighed by its offsets: a merged object is above all that it was made of,
   and what was put again is above what was there before;
3. then are the fewest.

What is left out is *superseded* if the object that holds its offsets proves it: its chunks and those of its neighbours
have together the CRC-32 of that object's, or that object is of an erasure, which changes bytes. It gets a tombstone.
Anything else is *doubtful*: it stays in the bucket, and is told. That is how two histories that raced show.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from coldstream.format.checksum import combine_crc32
from coldstream.rebuild.fragment import FoundFragment
from coldstream.units import TimestampMs

MAX_READINGS = 4
"""Different CRC-32s up to one offset that a proof follows; copies of the same bytes have the same."""

_Score = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Objects of the log, in order, that hold no offset twice, and those that hold the same offsets."""

    taken: tuple[FoundFragment, ...]
    superseded: tuple[FoundFragment, ...] = ()
    doubtful: tuple[FoundFragment, ...] = ()


def choose(found: Iterable[FoundFragment], *, at: TimestampMs | None = None) -> Iterator[Chosen]:
    """Choose among objects in the order of their first offsets. Memory: a run of objects that overlap.

    With `at`, objects that were made later are only taken beside those that were there, which come before all rules.
    """
    for group in _overlapping(found):
        if len(group) == 1:
            yield Chosen((group[0],))
            continue
        taken = _best(_not_erased_since(group), at)
        left = [one for one in group if all(one is not other for other in taken)]
        proven = {one.entry.key for chosen in taken for one in _superseded_by(chosen, left)}
        yield Chosen(
            taken,
            superseded=tuple(one for one in left if one.entry.key in proven),
            doubtful=tuple(one for one in left if one.entry.key not in proven),
        )


def _overlapping(found: Iterable[FoundFragment]) -> Iterator[list[FoundFragment]]:
    group: list[FoundFragment] = []
    reached = 0
    for one in found:
        if group and one.entry.first_offset >= reached:
            yield group
            group = []
        group.append(one)
        reached = max(reached, one.entry.next_offset)
    if group:
        yield group


def _not_erased_since(group: Sequence[FoundFragment]) -> Sequence[FoundFragment]:
    """Leave out what overlaps an erased object and is not erased; compaction never merges the two kinds."""
    erased = [one.entry for one in group if one.entry.erased]
    return [
        one
        for one in group
        if one.entry.erased
        or not any(
            one.entry.first_offset < other.next_offset and other.first_offset < one.entry.next_offset
            for other in erased
        )
    ]


def _best(group: Sequence[FoundFragment], at: TimestampMs | None) -> tuple[FoundFragment, ...]:
    """Return the objects that score best together, by the rules above."""
    # By generation, too: two of the same offsets must be chosen between in the same way, in whatever order they came.
    ordered = sorted(group, key=lambda one: (one.entry.next_offset, one.entry.generation, one.entry.key))
    ends = [one.entry.next_offset for one in ordered]
    best: list[_Score] = [(0, 0, 0, 0)]  # of the first objects, by how many they are
    for number, one in enumerate(ordered):
        best.append(max(best[number], _with(best[bisect_right(ends, one.entry.first_offset)], one, at)))
    taken: list[FoundFragment] = []
    number = len(ordered)
    while number:
        one = ordered[number - 1]
        before = bisect_right(ends, one.entry.first_offset)
        if best[number] != best[number - 1] and best[number] == _with(best[before], one, at):
            taken.append(one)
            number = before
        else:
            number -= 1
    return tuple(reversed(taken))


def _with(score: _Score, one: FoundFragment, at: TimestampMs | None) -> _Score:
    of_then, offsets, generations, fewer = score
    records = one.entry.records
    was_there = at is None or one.last_modified <= at
    return (
        of_then + (records if was_there else 0),
        offsets + records,
        generations + one.entry.generation * records,
        fewer - 1,
    )


def _superseded_by(chosen: FoundFragment, left: Iterable[FoundFragment]) -> Iterator[FoundFragment]:
    """Yield the objects within a chosen one that are proven to be what it was made of."""
    whole = chosen.entry
    parts = [
        one
        for one in left
        if whole.first_offset <= one.entry.first_offset and one.entry.next_offset <= whole.next_offset
    ]
    if whole.erased:
        yield from (one for one in parts if one.entry.generation < whole.generation)
        return
    # What is read up to an offset, as its CRC-32 and size, by all ways through the parts.
    readings: dict[int, set[tuple[int, int]]] = {whole.first_offset: {(0, 0)}}
    steps: list[tuple[FoundFragment, tuple[int, int], tuple[int, int]]] = []
    for one in sorted(parts, key=lambda one: one.entry.first_offset):
        entry = one.entry
        if entry.data_crc32 is None:
            continue
        for reading in tuple(readings.get(entry.first_offset, ())):
            crc32, size_bytes = reading
            after = combine_crc32(crc32, entry.data_crc32, entry.data_bytes), size_bytes + entry.data_bytes
            known = readings.setdefault(entry.next_offset, set())
            if after in known or len(known) < MAX_READINGS:
                known.add(after)
                steps.append((one, reading, after))
    if whole.data_crc32 is None:
        return
    proven = {(int(whole.next_offset), whole.data_crc32, whole.data_bytes)}
    # Backwards: what leads to the end that is the chosen object's.
    for one, reading, after in reversed(steps):
        if (int(one.entry.next_offset), *after) in proven:
            proven.add((int(one.entry.first_offset), *reading))
            yield one
