"""Where reading stands in a stream, and how a chunk relates to that.

Offsets alone do not prove that a chunk continues what was read: a stream that was deleted and declared again has the
same offsets. So the position remembers the last user chunk that was read, the *witness*. Two logs that hold the same
chunk, with the same id and epoch, are equal up to it, because osiris replicates as Raft does. Wherever reading goes on,
it asks for the witness again, and the chunk that comes has to be the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from coldstream.errors import IncarnationError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import FIRST, AtOffset, OffsetSpec
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs


class Relation(Enum):
    """How a user chunk relates to the position."""

    BEFORE = auto()
    """All of it lies before the position."""

    WITNESS = auto()
    """It is the witness."""

    NEXT = auto()
    """It continues exactly at the position."""

    PAST = auto()
    """It begins after the position: tracking chunks lie between, or chunks that were deleted."""


@dataclass(slots=True)
class ReadPosition:
    """The offset that is expected next, and what is known of the log before it.

    `expected` is None until a start is found; until then reading attaches by the spec `start`. `is_border` says whether
    a chunk begins at `expected`, which is known once a chunk was read. `witness` is the last user chunk before it, with
    only tracking chunks between; with `is_erased`, messages of it may have been erased. `incarnation` is the one that
    was read out of the archive, None until anything was: no other is read after that. `broker_first` is the broker's
    first chunk as seen before reading began.

    Messages before `from_offset` are left out, and so are all chunks before the first one at or after `not_before`.
    """

    stream: str
    start: OffsetSpec = FIRST
    expected: Offset | None = None
    is_border: bool = False
    witness: ChunkHeader | None = None
    is_erased: bool = False
    incarnation: Incarnation | None = None
    broker_first: ChunkHeader | None = None
    from_offset: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    not_before: TimestampMs | None = None

    def relation(self, header: ChunkHeader, *, is_erased: bool = False) -> Relation:
        """Return how a user chunk relates to the position. Raises IncarnationError if it contradicts what was read.

        With `is_erased`, messages of it may have been erased.
        """
        if self.expected is None:
            return Relation.NEXT
        # Only tracking chunks lie between the witness and `expected`, so a user chunk there is the witness or proof of
        # another log. This has to come before the comparison of offsets: another log's chunk may just look older.
        if self.witness is not None and header.next_offset > self.witness.chunk_id:
            if is_same(self.witness, header, is_erased=is_erased or self.is_erased):
                return Relation.WITNESS
            if header.chunk_id < self.expected:
                raise self._incarnation_error(header)
        if header.next_offset <= self.expected:
            return Relation.BEFORE
        if header.chunk_id > self.expected:
            return Relation.PAST
        if header.chunk_id < self.expected and self.is_border:
            raise self._incarnation_error(header)
        return Relation.NEXT

    def check_order(self, header: ChunkHeader) -> None:
        """Compare a chunk with the witness, if the witness itself was not delivered.

        Raises IncarnationError if a chunk after the witness has an older epoch, which no incarnation has, or if a chunk
        before it is younger. A leader's clock that stepped back may cause the latter too, but then nothing proves that
        the stream is the same, and stopping is safe.
        """
        witness = self.witness
        if witness is None:
            return
        is_later = header.chunk_id > witness.chunk_id
        if (is_later and header.epoch < witness.epoch) or (not is_later and header.timestamp > witness.timestamp):
            raise self._incarnation_error(header)

    def advance(self, header: ChunkHeader, *, is_erased: bool = False) -> None:
        """Move to the end of a user chunk, which becomes the witness."""
        self.expected = header.next_offset
        self.is_border = True
        self.witness = header
        self.is_erased = is_erased

    def reaches_start_time(self, header: ChunkHeader) -> bool:
        """Tell whether a chunk is at or after the start time, or comes after one that was."""
        if self.not_before is not None and header.timestamp >= self.not_before:
            # Forget the time: clocks may step back, and chunks after the first one count whatever their time is.
            self.not_before = None
        return self.not_before is None

    def move(self, offset: Offset, *, is_border: bool = True) -> None:
        """Go to an offset, whatever lies between. Nothing vouches for the log before it, so there is no witness."""
        self.expected = offset
        self.is_border = is_border
        self.witness = None

    def attachment(self) -> OffsetSpec:
        """Return where to attach: at the witness, so that it comes first; else at what is expected, or the start."""
        if self.witness is not None:
            return AtOffset(Offset(self.witness.chunk_id))
        return self.start if self.expected is None else AtOffset(self.expected)

    def _incarnation_error(self, header: ChunkHeader) -> IncarnationError:
        return IncarnationError(
            f"stream {self.stream!r} was deleted and declared again: its chunk with the offsets {header.chunk_id} to"
            f" {header.next_offset - 1} does not continue what was read, which ended before offset {self.expected}"
        )
