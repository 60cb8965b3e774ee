"""The values of `publishing.py`: a publisher that is being declared, and one that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from coldstream.gateway.alone.open_direct import OpenDirect
from coldstream.gateway.alone.permissions import StreamPermissions
from coldstream.gateway.alone.published import PublishedEntry
from coldstream.gateway.alone.publisher_turn import PublisherTurn
from coldstream.streams import Batch

_ENTRY_COST_BYTES = 100
"""What an entry costs in memory beside its bytes, roughly."""


@dataclass(slots=True, eq=False)
class DeclaringPublisher:
    """A publisher whose stream is just being opened. `kept` is what came for it by then: clients need not wait."""

    id: int
    reference: str | None
    stream: str
    kept: list[PublishedEntry] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class DeclaredPublisher:
    """A publisher: where its messages go, and those that are gathered.

    `permitted` are the permissions by which it was last found that it may write.
    """

    id: int
    reference: str | None
    opened: OpenDirect
    turn: PublisherTurn
    permitted: StreamPermissions
    tell_lost: Callable[[], None]
    gathered: list[PublishedEntry] = field(default_factory=list)
    gathered_bytes: int = 0
    timer: asyncio.TimerHandle | None = None

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self.opened.names[1]

    def take_gathered(self) -> list[PublishedEntry]:
        """Return what is gathered, which it is no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        entries, self.gathered, self.gathered_bytes = self.gathered, [], 0
        return entries


def cost_bytes(entries: Sequence[PublishedEntry]) -> int:
    """Return what entries take in memory."""
    return sum(len(one.data) + _ENTRY_COST_BYTES for one in entries)


def batch_of(entries: Sequence[PublishedEntry]) -> Batch | None:
    """Return a batch of entries, None if they hold no message. A sub-batch of nothing would take no offset."""
    full = [one for one in entries if one.records]
    if not full:
        return None
    data = b"".join(one.data for one in full)
    return Batch(data, len(full), sum(one.records for one in full), crc32(data))
