"""Deduplication by message, over all connections of this process: what a reference has given to a stream last.

A direct stream knows a publisher's last id by batch: it takes a batch whole, or not at all. A broker decides by
message. So messages that the stream has are taken out here before a batch is appended; `last` is asked of the stream
once, when the publisher is declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from coldstream.gateway.alone.published import PublishedEntry
from coldstream.units import Offset


@dataclass(slots=True)
class PublisherTurn:
    """A reference's last id, None if it has none, the append that was begun last, and the publishers that have it."""

    last: int | None = None
    publishers: int = 0
    appending: asyncio.Task[Offset | None] | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether nobody has it, and nothing of it is being appended."""
        return not self.publishers and self.appending is None

    def take_new(self, entries: Iterable[PublishedEntry]) -> list[PublishedEntry]:
        """Return the entries that were not given before, and note the greatest id of them."""
        new = []
        for entry in entries:
            if self.last is None or entry.publishing_id > self.last:
                self.last = entry.publishing_id
                new.append(entry)
        return new
