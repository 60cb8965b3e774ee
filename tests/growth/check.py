"""What the reader of a sharded stream was given, held against what was published.

A killed instance's messages that were not confirmed may be in the stream, and the next instance publishes them again.
So of each key the instances follow one another, each with numbers that rise by one, and go back to no number that was
confirmed before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from tests.growth.reading import Line
from tests.growth.world import by_key


def problems_of(lines: Collection[Line], confirmed: Mapping[str, Collection[int]]) -> list[str]:
    """Return what is lost, doubled, or out of order, in sentences."""
    read = by_key(lines)
    problems = [f"{key} was never published" for key in sorted(read.keys() - confirmed.keys())]
    for key, numbers in confirmed.items():
        given = read.get(key, [])
        if lost := sorted(set(numbers) - {number for _, number in given}):
            problems.append(f"{key}: {len(lost)} messages are lost, the first is {lost[0]}")
        if doubled := len(given) - len(set(given)):
            problems.append(f"{key}: {doubled} messages were given twice")
        for before, after in pairwise(given):
            if _instance(after) < _instance(before) or (after[0] == before[0] and after[1] != before[1] + 1):
                problems.append(f"{key}: {after} was given after {before}")
                break
    return problems


def _instance(message: tuple[str, int]) -> int:
    return int(message[0].rpartition("-")[2])
