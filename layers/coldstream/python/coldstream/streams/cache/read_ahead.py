"""How far to read ahead of a reader: nothing at first, twice as far whenever it had to wait, half as far after waste.

A reader is whoever asks for what follows the last thing that was read: it needs no name, and a random read, which
follows nothing, has no read-ahead and makes none.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from coldstream.manifest.stream import Incarnation
from coldstream.units import MIB, Offset

LEAST_BYTES = MIB
"""The first window: about one block."""

MOST_BYTES = 64 * MIB
"""The widest window: eight GETs under way, the most that are worth their memory for one reader."""

MAX_READERS = 4096
"""How many readers are remembered. One that is forgotten begins anew, without read-ahead."""


@dataclass(slots=True, eq=False)
class ReadAhead:
    """The window of one reader: so many bytes after what it has read are to be there before it asks."""

    window_bytes: int = 0
    least_bytes: int = LEAST_BYTES
    most_bytes: int = MOST_BYTES

    @property
    def wider_bytes(self) -> int:
        """The next wider window."""
        return min(max(2 * self.window_bytes, self.least_bytes), self.most_bytes)

    def grow(self) -> None:
        """Widen the window: a sequential read had to wait."""
        self.window_bytes = self.wider_bytes

    def cool(self) -> None:
        """Narrow the window: what was read ahead went before anybody read it. Below one block there is none."""
        half = self.window_bytes // 2
        self.window_bytes = half if half >= self.least_bytes else 0


class Readers:
    """The windows of all readers, by the place that each will ask for next."""

    def __init__(self, *, least_bytes: int = LEAST_BYTES, most_bytes: int = MOST_BYTES) -> None:
        self._least_bytes = least_bytes
        self._most_bytes = most_bytes
        self._by_place: OrderedDict[tuple[Incarnation, Offset], ReadAhead] = OrderedDict()

    def at(self, incarnation: Incarnation, offset: Offset) -> ReadAhead | None:
        """Take the window of the reader that comes to `offset`, None for one that comes from nowhere."""
        return self._by_place.pop((incarnation, offset), None)

    def put(self, incarnation: Incarnation, offset: Offset, window: ReadAhead | None) -> None:
        """Expect a reader at `offset`, with its window; None for one without."""
        found = window or ReadAhead(0, self._least_bytes, self._most_bytes)
        there = self._by_place.get((incarnation, offset))
        # Of two readers at one place, whoever comes first goes on with the wider window; the other finds its blocks.
        if there is None or there.window_bytes < found.window_bytes:
            self._by_place[incarnation, offset] = found
        self._by_place.move_to_end((incarnation, offset))
        if len(self._by_place) > MAX_READERS:
            self._by_place.popitem(last=False)
