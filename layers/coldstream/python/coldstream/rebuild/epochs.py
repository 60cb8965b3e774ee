"""Two histories in one bucket: epochs never fall along a log, so where they do, one side was never committed. Pure.

The objects before the fall that have later epochs are weighed against those after it that have earlier ones, MAX_HELD
of each at most. The side with fewer offsets is left out; of equal sides the later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from coldstream.manifest.history import first_epoch
from coldstream.rebuild.choose import Chosen
from coldstream.rebuild.fragment import FoundFragment
from coldstream.units import Epoch

MAX_HELD = 64


def of_one_history(
    chosen: Iterable[Chosen], *, after: Epoch | None, leave_out: Callable[[FoundFragment], None]
) -> Iterator[Chosen]:
    """Pass on the objects of one history, one at a time and in order; call `leave_out` for those of the other.

    `after` is the epoch of the log's last chunk before them, None if there is none.
    """
    sides = _Sides(after, leave_out)
    for one in _single(chosen):
        yield from sides.take(one)
    yield from sides.finish()


class _Sides:
    """The objects held back, and those that contradict the last of them."""

    def __init__(self, passed: Epoch | None, leave_out: Callable[[FoundFragment], None]) -> None:
        self._held: deque[Chosen] = deque()
        self._rivals: list[Chosen] = []
        self._passed = passed  # of the last object that was passed on: nothing can leave that out
        self._leave_out = leave_out

    def take(self, one: Chosen) -> Iterator[Chosen]:
        if _falls(self._last_epoch(), one):
            if self._rivals and (len(self._rivals) == MAX_HELD or _falls(_epoch(self._rivals[-1]), one)):
                self._settle()
                yield from self.take(one)
                return
            self._rivals.append(one)
            return
        # It fits after what the rivals contradict, so both sides have ended.
        self._settle()
        self._held.append(one)
        while len(self._held) > MAX_HELD:
            self._passed = _epoch(self._held[0])
            yield self._held.popleft()

    def finish(self) -> Iterator[Chosen]:
        self._settle()
        yield from self._held

    def _last_epoch(self) -> Epoch | None:
        return _epoch(self._held[-1]) if self._held else self._passed

    def _settle(self) -> None:
        """Leave out the rivals, or what they contradict."""
        if not self._rivals:
            return
        later: list[Chosen] = []
        while self._held and _falls(_epoch(self._held[-1]), self._rivals[0]):
            later.insert(0, self._held.pop())
        # What comes before both must fit, too: it may have been passed on.
        is_possible = not _falls(self._last_epoch(), self._rivals[0])
        kept, left = later, self._rivals
        if is_possible and _offsets(self._rivals) > _offsets(later):
            kept, left = left, kept
        self._held += kept
        for one in left:
            for found in (*one.taken, *one.superseded, *one.doubtful):
                self._leave_out(found)
        self._rivals = []


def _single(chosen: Iterable[Chosen]) -> Iterator[Chosen]:
    """Pass on one object at a time; what was left out of its run goes with the first."""
    for one in chosen:
        yield replace(one, taken=one.taken[:1])
        for found in one.taken[1:]:
            yield Chosen((found,))


def _falls(before: Epoch | None, after: Chosen) -> bool:
    epoch = first_epoch(after.taken[0].entry)
    return before is not None and epoch is not None and epoch < before


def _epoch(one: Chosen) -> Epoch:
    return one.taken[-1].entry.epoch


def _offsets(side: Iterable[Chosen]) -> int:
    return sum(found.entry.records for one in side for found in one.taken)
