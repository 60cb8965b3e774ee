"""What the index by time may show while it lags: each item in any state that it has had, and nothing while it moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from coldstream.manifest.state import ManifestState
from coldstream.store.memory.rows import items_of
from coldstream.store.memory.visibility import _index_key

ALL_WAYS = 3
"""Up to so many items of the index show in any combination of their states."""


def states_in_index(partitions: Sequence[ManifestState]) -> dict[str, list[Any]]:
    """Return the states of each item in the index, by its key in the table; the partitions are the oldest first."""
    first, *later = partitions
    index: dict[str, list[Any]] = {key: in_index(item) for key, item in items_of(first, "log").items()}
    for partition in later:
        items = items_of(partition, "log")
        for key in index.keys() | items.keys():
            states = index.setdefault(key, [None])
            (place,) = in_index(items.get(key))
            if states[-1] is not None and place is not None and states[-1][0] != place[0]:
                states.append(None)  # it is at neither place
            if states[-1] != place:
                states.append(place)
    return index


def picks(states: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """Yield which state of each item in the index shows: all ways of a few items, else all alike but one."""
    if len(states) <= ALL_WAYS:
        for some in product(*(range(count) for count in states.values())):
            yield dict(zip(states, some, strict=True))
        return
    oldest, newest = dict.fromkeys(states, 0), {key: count - 1 for key, count in states.items()}
    yield oldest
    yield newest
    for key, count in states.items():
        for one in range(count):
            yield oldest | {key: one}
            yield newest | {key: one}


def in_index(*states: object) -> list[Any]:
    """Return the states of an item in the index, each with its key there."""
    return [None if (place := _index_key(one)) is None else (place, one) for one in states]
