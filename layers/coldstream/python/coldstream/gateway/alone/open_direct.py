"""`OpenDirect`: a direct stream that this process has open to append to, and who publishes to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coldstream.gateway.alone.publisher_turn import PublisherTurn
from coldstream.streams import DirectStream

Names = tuple[str, str]
"""Vhost and stream."""


@dataclass(slots=True, eq=False)
class OpenDirect:
    """A direct stream that this process appends to. `publishers` are those declared; `on_lost` is called once.

    `turns` has what each reference was given last: of all connections, as an id counts for the stream.
    """

    names: Names
    handle: DirectStream
    publishers: int = 0
    released_at: float = field(default_factory=time.monotonic)
    checked_at: float = field(default_factory=time.monotonic)
    turns: dict[str, PublisherTurn] = field(default_factory=dict)
    on_lost: set[Callable[[], None]] = field(default_factory=set)
    is_lost: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def announce(self) -> None:
        """Wake whoever waits for messages: an append has told that nobody else has the stream, or that somebody has."""
        self.checked_at = time.monotonic()
        self.news.set()
        self.news = asyncio.Event()

    async def turn_of(self, reference: str | None) -> PublisherTurn:
        """Return the turn of a reference; one of its own without one. Raises StreamClosedError."""
        if not reference:
            return PublisherTurn()
        known = self.turns.get(reference)
        if known is None:
            last = await self.handle.publisher_id(reference)
            # Another may have asked meanwhile, and published since.
            known = self.turns.setdefault(reference, PublisherTurn(last))
        return known

    def drop_idle(self, reference: str | None, turn: PublisherTurn) -> None:
        """Forget a reference that nobody has: the stream knows it, and others may come with ever new ones."""
        if reference and turn.is_idle and self.turns.get(reference) is turn:
            del self.turns[reference]
