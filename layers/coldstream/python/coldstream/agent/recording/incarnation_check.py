"""Whether chunks that a subscription delivers are of the incarnation that is being recorded.

A stream may be deleted and declared again between two connections. Brokers do not say so: the subscription then
delivers the chunks of another incarnation, at any offset. So each subscription begins at a chunk that we have, the
known one, and nothing after that chunk is believed until the broker has delivered it again.
"""

from __future__ import annotations

from coldstream.agent.proof.incarnations import CLOCKS_APART_MS, Anchor
from coldstream.format.chunk import ChunkHeader, ChunkType
from coldstream.live.delivered import is_same
from coldstream.units import Offset


class IncarnationCheck:
    """Compares delivered chunks with the known one: the last user chunk recorded, or `anchor` before there is one.

    `is_confirmed` says that the subscription has delivered the known chunk.
    """

    def __init__(self, anchor: Anchor) -> None:
        self.is_confirmed = False
        self._anchor = anchor

    def begin(self) -> None:
        """Begin with another subscription."""
        self.is_confirmed = False

    def is_another(self, header: ChunkHeader, *, last: ChunkHeader | None, next_offset: Offset) -> bool:
        """Tell whether a chunk cannot be of this incarnation.

        `last` is the last user chunk recorded, `next_offset` where recording goes on.
        """
        known = last or self._anchor
        is_user = header.type is ChunkType.USER
        is_older = last is not None and header.epoch < last.epoch
        if header.next_offset <= known.chunk_id:
            # Before the known chunk. A member that lags behind delivers such chunks; they must not look newer than it.
            is_newer = header.timestamp > known.timestamp + CLOCKS_APART_MS
            is_of_later_epoch = last is not None and header.epoch > last.epoch
            return is_newer or is_of_later_epoch or (is_user and header.chunk_id >= next_offset)
        if header.chunk_id == known.chunk_id:
            is_known = self._anchor.is_chunk(header) if last is None else is_same(header, last)
            self.is_confirmed = is_user and is_known
            return not self.is_confirmed
        if header.chunk_id < max(next_offset, known.chunk_id):
            # Between the known chunk and the place to go on there are tracking chunks alone.
            return is_user or is_older or not self.is_confirmed
        # Retention may have deleted the known chunk; then nothing shows that this is the same incarnation.
        return is_older or not self.is_confirmed
