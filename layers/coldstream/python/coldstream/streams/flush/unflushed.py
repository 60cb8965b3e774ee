"""`UnflushedStreams`: what is acknowledged and not archived yet, by stream, and which stream is to be flushed next."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.streams.flush.options import FlushOptions
from coldstream.units import Offset


@dataclass(slots=True)
class Unflushed:
    """What one stream has: `size_bytes` of batches, the last of which ends before `next_offset`.

    The first came at `since_s`, after `position` bytes of all streams.
    """

    stream: StreamId
    next_offset: Offset
    size_bytes: int
    since_s: float
    position: int

    def is_large(self, options: FlushOptions) -> bool:
        """Tell whether it fills a fragment."""
        return self.size_bytes >= options.fragment_bytes


class UnflushedStreams:
    """Counts in a few hundred bytes a stream. Times are of one clock that never goes back."""

    def __init__(self, options: FlushOptions) -> None:
        self._options = options
        self._streams: dict[Incarnation, Unflushed] = {}
        """In the order of their first batches, the oldest first."""
        self._large: dict[Incarnation, None] = {}
        self._position = 0
        self._is_olds_turn = False

    def __len__(self) -> int:
        """Count the streams that have anything."""
        return len(self._streams)

    @property
    def size_bytes(self) -> int:
        """Bytes of all streams."""
        return sum(one.size_bytes for one in self._streams.values())

    def add(self, stream: StreamId, next_offset: Offset, size_bytes: int, now_s: float) -> None:
        """Take note of a batch, in the order of offsets."""
        one = self._streams.get(stream.incarnation)
        if one is None:
            one = Unflushed(stream, next_offset, 0, now_s, self._position)
            self._streams[stream.incarnation] = one
        one.next_offset = next_offset
        one.size_bytes += size_bytes
        self._position += size_bytes
        if one.is_large(self._options):
            self._large[stream.incarnation] = None

    def take(self, incarnation: Incarnation) -> Unflushed | None:
        """Take what a stream has: what comes from now on is counted anew. None if it has nothing."""
        self._large.pop(incarnation, None)
        return self._streams.pop(incarnation, None)

    def put_back(self, one: Unflushed) -> None:
        """Put back what was taken and not flushed, before what has come since."""
        since = self.take(one.stream.incarnation)
        if since is not None:
            one.next_offset = since.next_offset
            one.size_bytes += since.size_bytes
        self._streams = {one.stream.incarnation: one, **self._streams}
        if one.is_large(self._options):
            self._large[one.stream.incarnation] = None

    def next_due(self, now_s: float, *, pressed: bool, but: frozenset[Incarnation]) -> StreamId | None:
        """Return the stream to flush now, None if it is for none yet; those of `but` are left out.

        It is the one with the most if memory runs short, else one that fills a fragment; or the oldest, if its age or
        the length of the write-ahead log says so. If there are both, they take turns: busy streams would otherwise keep
        the others, and with them the write-ahead log, waiting for ever.
        """
        large = self._largest(but) if pressed else self._filled(but)
        old = self._due(now_s, but)
        if large is None or old is None:
            return large or old
        self._is_olds_turn = not self._is_olds_turn
        return old if self._is_olds_turn else large

    def due_in_s(self, now_s: float, *, but: frozenset[Incarnation]) -> float | None:
        """Return after how long a stream comes of age, None if there is none."""
        oldest = self._oldest(but)
        return None if oldest is None else max(0.0, oldest.since_s + self._options.flush_age_s - now_s)

    def _largest(self, but: frozenset[Incarnation]) -> StreamId | None:
        others = (one for incarnation, one in self._streams.items() if incarnation not in but)
        largest = max(others, key=lambda one: one.size_bytes, default=None)
        return None if largest is None else largest.stream

    def _filled(self, but: frozenset[Incarnation]) -> StreamId | None:
        return next((self._streams[one].stream for one in self._large if one not in but), None)

    def _due(self, now_s: float, but: frozenset[Incarnation]) -> StreamId | None:
        oldest = self._oldest(but)
        if oldest is None:
            return None
        # The same sum as below: rounded otherwise, who waits until it is due would find that it is not yet.
        is_old = oldest.since_s + self._options.flush_age_s <= now_s
        return oldest.stream if is_old or self._position - oldest.position > self._options.wal_bytes else None

    def _oldest(self, but: frozenset[Incarnation]) -> Unflushed | None:
        return next((one for incarnation, one in self._streams.items() if incarnation not in but), None)
