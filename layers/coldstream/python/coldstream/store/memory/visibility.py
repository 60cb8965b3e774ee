"""What readers see of transactions that are being written: the weak consistency of the in-memory double.

DynamoDB makes transactions serial among themselves, and a strongly consistent read of one item finds its last state. It
promises no more: the items of a transaction that is being committed appear one by one, in any order, so a Query, two
pages, or a GetItem and a Query may show any subset of them, and a later transaction may be whole while an earlier one
still shows by half. A transaction on an item that another is still writing is refused (TransactionConflict).
The index by time follows the table item by item, each with any delay; an item that moves in the index is at neither
place for a while.

    table = MemoryTable(SeededVisibility(seed))     # each item of each read is old or new, by chance
    table = MemoryTable(policy)                     # anything with `pick(key, states)`, as below
    table.settle()                                  # all that was written so far shows, everywhere

`apply` returns when a transaction is certain, not when all of it shows, as if another process had written it whose
answer is still on its way. For a writer that has its answer, call `settle` after it. Without a policy everything shows
at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from coldstream.manifest.entry import FragmentEntry, Head
from coldstream.store.sortkeys import TIME_OF_HEAD, time_key

BY_TIME = "by-time "
"""Prefix of the keys of items that are read in the index by time."""

Items = Mapping[str, object]
"""The items of one partition, by sort key."""


class Visibility(Protocol):
    """Decides which states of items reads find."""

    def pick(self, key: str, states: int) -> int:
        """Return which state of an item is found: 0 is the oldest there may be, `states` - 1 the newest.

        It is called for each item of every read, in order, even if there is only one state. So a policy can script an
        order, enumerate all of them, or write to the table between two items of one Query.

        In the table an item has two states while a transaction is being written. Once a read finds the newest, all
        later reads find it. A transaction on such an item calls this, too: 0 refuses it. In the index (`key` begins
        with BY_TIME) an item has all states since the last `settle`, and an older one may show after a newer one.
        """
        ...


class SeededVisibility:
    """Picks at random: the newest state with the probability `newest`, else any other."""

    def __init__(self, seed: int, *, newest: float = 0.5) -> None:
        self._rng = random.Random(seed)  # noqa: S311  not a secret
        self._newest = newest

    def pick(self, _: str, states: int) -> int:
        """Pick at random."""
        if states == 1 or self._rng.random() < self._newest:
            return states - 1
        return self._rng.randrange(states - 1)


class ShownPartition:
    """The visible state of one partition. `items` returns the newest state. Threads must not share it."""

    def __init__(self, visibility: Visibility, items: Callable[[], Items]) -> None:
        self._visibility = visibility
        self._items = items
        self._before: dict[str, object | None] = {}
        """The states of items before the transaction that is still writing them; None if there was none."""
        self._index: dict[str, list[tuple[str, object] | None]] = {}
        """The states of each item in the index, with its key there, the oldest first."""

    def conflict(self, keys: Iterable[str]) -> str | None:
        """Return one of these items that another transaction is still writing, None if there is none."""
        for key in sorted(keys):  # sorted, so that a seeded policy decides alike in each run
            if key in self._before:
                if self._visibility.pick(key, 2) == 0:
                    return key
                self._show(key)
        return None

    def begin(self, before: Items, after: Items) -> None:
        """Begin to show a transaction that conflicts with no other."""
        self._before |= {key: before.get(key) for key in changed(before, after)}

    def settle(self) -> None:
        """Show everything that was written."""
        for key in list(self._before):
            self._show(key)
        self._index = {key: states[-1:] for key, states in self._index.items()}

    def get(self, key: str) -> object | None:
        """Read one item."""
        if self._visibility.pick(key, 1 + (key in self._before)) == 0 and key in self._before:
            return self._before[key]
        self._show(key)
        return self._items().get(key)

    def query(self, first: str, last: str, *, backwards: bool = False) -> Iterator[object]:
        """Read the items of a range of keys, both ends included, one after the other, each as it is at that moment."""
        passed: str | None = None
        while True:
            # Looked up anew for each item: a transaction between two of them may add and remove keys.
            keys = (key for key in self._items().keys() | self._before.keys() if first <= key <= last)
            if backwards:
                passed = max((key for key in keys if passed is None or key < passed), default=None)
            else:
                passed = min((key for key in keys if passed is None or key > passed), default=None)
            if passed is None:
                return
            found = self.get(passed)
            if found is not None:
                yield found

    def query_index(self, first: str) -> Iterator[object]:
        """Read the index from a key on."""
        found = []
        for key in sorted(self._index):
            states = self._index[key]
            state = states[self._visibility.pick(BY_TIME + key, len(states))]
            if state is not None and state[0] >= first:
                found.append(state)
        return (item for _, item in sorted(found, key=lambda state: state[0]))

    def _show(self, key: str) -> None:
        if key not in self._before:
            return
        del self._before[key]
        item = self._items().get(key)
        states = self._index.get(key, [None])
        place = _index_key(item)
        if states[-1] is not None and states[-1][0] != place:
            states.append(None)
        if place is not None:
            states.append((place, item))
        if states != [None]:
            self._index[key] = states


def changed(before: Items, after: Items) -> Iterator[str]:
    """Yield the keys of the items that differ between two states of a partition."""
    return (key for key in before.keys() | after.keys() if before.get(key) is not after.get(key))


def _index_key(item: object | None) -> str | None:
    match item:
        case FragmentEntry():
            return time_key(item.running_timestamp, item.next_offset)
        case Head():
            return TIME_OF_HEAD
    return None
