"""What a child runs: something that listens, counts and drains.

`served_proxy.py` and `served_alone.py` are the two; `wiring.py` makes the one that the options mean.
"""

from __future__ import annotations

from typing import Protocol

from coldstream.gateway.cold import ColdRow


class Served(Protocol):
    """A server on the event loop, in front of a broker or alone. It listens from the moment that it is made."""

    def stop_listening(self) -> None:
        """Take no connection any more; those that are open stay."""

    def close_some(self, count: int) -> None:
        """Tell so many of the connections that were not told yet to go: their clients connect elsewhere."""

    @property
    def open_connections(self) -> int:
        """How many are open."""

    def reload(self) -> None:
        """Read the files for TLS again."""

    def coldest(self, count: int) -> tuple[ColdRow, ...]:
        """Return the cold subscriptions that are furthest behind, and bring the figures up to date."""

    async def archive_problem(self) -> str | None:
        """Ask the archive something cheap, within a bound; return why it doesn't answer, None if it does."""

    async def close(self) -> None:
        """Cut off what is open, and free everything."""
