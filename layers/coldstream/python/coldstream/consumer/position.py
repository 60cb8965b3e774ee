"""Where a stream has been read to, and what a chunk says to that.

Offsets alone do not prove that a chunk continues what was read: a stream that was deleted and declared again begins
anew with the same ones. So the last user chunk is remembered, the *witness*. Two logs that hold the same chunk, of the
same id and epoch, are equal up to it (osiris replicates as Raft does); the witness is asked for again wherever reading
goes on, and has to be what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from coldstream.errors import IncarnationError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.spec import AtOffset
from coldstream.units import Offset, TimestampMs


class Relation(Enum):
    """What a user chunk is to the place."""

    BEFORE = auto()
    """All of it lies before."""

    WITNESS = auto()
    """It is the witness."""

    NEXT = auto()
    """It goes on exactly here."""

    PAST = auto()
    """It begins behind the place: tracking chunks lie between, or chunks that have been deleted."""


@dataclass(slots=True)
class ReadPosition:
    """The offset that is expected next; None before a start is known.

    `is_border` tells that a chunk begins there, which is known once a chunk has been read. `witness` is the last user
    chunk before it, with nothing but tracking chunks between. Messages before `from_offset` are not wanted, and no
    chunk until there was one at `not_before` or after it.
    """

    stream: str
    expected: Offset | None = None
    is_border: bool = False
    witness: ChunkHeader | None = None
    from_offset: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    not_before: TimestampMs | None = None

    def relation(self, header: ChunkHeader) -> Relation:
        """Tell what a user chunk is to the place. Raises IncarnationError where it cannot be of the same life."""
        if self.expected is None:
            return Relation.NEXT
        if self.witness is not None and header.next_offset > self.witness.chunk_id:
            if is_same(self.witness, header):
                return Relation.WITNESS
            if header.chunk_id < self.expected:
                raise self._another(header)
        if header.next_offset <= self.expected:
            return Relation.BEFORE
        if header.chunk_id > self.expected:
            return Relation.PAST
        if header.chunk_id < self.expected and self.is_border:
            raise self._another(header)
        return Relation.NEXT

    def check_order(self, header: ChunkHeader) -> None:
        """Check a chunk when the witness was to come, and did not.

        Raises IncarnationError where one that lies behind has an older epoch, which no life of a stream has; and where
        one that lies before is younger: a leader's clock that stepped back may do that, too, but it is not safe to say.
        """
        witness = self.witness
        if witness is None:
            return
        is_later = header.chunk_id > witness.chunk_id
        if (is_later and header.epoch < witness.epoch) or (not is_later and header.timestamp > witness.timestamp):
            raise self._another(header)

    def advance(self, header: ChunkHeader) -> None:
        """Go behind a user chunk."""
        self.expected = header.next_offset
        self.is_border = True
        self.witness = header

    def is_wanted(self, header: ChunkHeader) -> bool:
        """Tell whether a chunk is late enough: from the first on that is, all are."""
        if self.not_before is not None and header.timestamp >= self.not_before:
            self.not_before = None
        return self.not_before is None

    def move(self, offset: Offset, *, is_border: bool = True) -> None:
        """Go to an offset, whatever lies between."""
        self.expected = offset
        self.is_border = is_border
        self.witness = None

    def attachment(self) -> AtOffset | None:
        """Return where to attach so that the witness comes first, or else what is expected; None without either."""
        if self.witness is not None:
            return AtOffset(Offset(self.witness.chunk_id))
        return None if self.expected is None else AtOffset(self.expected)

    def _another(self, header: ChunkHeader) -> IncarnationError:
        return IncarnationError(
            f"stream {self.stream!r} was deleted and declared again: the chunk of offsets {header.chunk_id} to"
            f" {header.next_offset - 1} does not go with what was read up to {self.expected}"
        )
