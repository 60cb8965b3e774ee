"""What one process of the gateway counts.

Each part adds to the fields that are its own, on the thread of the event loop; `process` collects them. Totals only
grow. The others are what is true now.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Self

from coldstream.gateway.cold import ColdReader


@dataclass(slots=True)
class GatewayFigures:
    """The counts of one process since it began. Not for threads."""

    # Connections: the proxy's, and those of archive-only mode.
    connections: int = 0
    connections_total: int = 0
    refused_connections_total: int = 0
    """Connections that were over --max-connections."""
    broker_failures_total: int = 0
    """Connections of clients for which no broker could be reached, or whose broker went away."""
    bytes_from_clients_total: int = 0
    bytes_to_clients_total: int = 0

    # Subscriptions.
    cold_subscriptions: int = 0
    """Those that are served from the archive now."""
    live_subscriptions: int = 0
    """Those that the broker serves now."""
    takeovers_total: int = 0
    """Subscriptions that began in the archive."""
    handovers_total: int = 0
    """How often one went on from the archive to the broker."""
    returns_total: int = 0
    """How often retention overtook one, and it went on from the archive."""
    gaps_total: Counter[str] = field(default_factory=Counter)
    """Gaps that a subscription met, by what became of it: `error` or `skip`."""

    # The archive.
    archive_chunks_total: int = 0
    archive_bytes_total: int = 0
    """Of chunks that clients were sent from the archive."""
    archive_failures_total: Counter[str] = field(default_factory=Counter)
    """Questions to table and bucket that failed, by the kind of error: `unavailable`, `denied`, `corrupt`, `other`."""
    memory_used_bytes: int = 0
    """What all cold subscriptions hold of the budget."""
    memory_budget_bytes: int = 0
    lag_offsets: int = 0
    """How far the cold subscription that is furthest behind is from the archive's tail."""
    cold: set[ColdReader] = field(default_factory=set, compare=False, repr=False)
    """The cold subscriptions themselves, which add and remove themselves; no count, and not for others."""

    def add_totals(self, other: GatewayFigures) -> None:
        """Add the totals of a process that has ended, and nothing of what was true only while it ran."""
        for name in COUNTS:
            if name.endswith("_total"):
                self._add(name, other)

    def add(self, other: GatewayFigures) -> None:
        """Add another process's counts. The lag is the greater one."""
        lag_offsets = max(self.lag_offsets, other.lag_offsets)
        for name in COUNTS:
            self._add(name, other)
        self.lag_offsets = lag_offsets

    def _add(self, name: str, other: GatewayFigures) -> None:
        setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_dict(self) -> dict[str, int | dict[str, int]]:
        """Return the counts by name, for JSON."""
        values = {name: getattr(self, name) for name in COUNTS}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, given: dict[str, int | dict[str, int]]) -> Self:
        """Return what `to_dict` was made of."""
        return cls(**{name: Counter(value) if isinstance(value, dict) else value for name, value in given.items()})  # type: ignore[arg-type]


COUNTS = tuple(each.name for each in fields(GatewayFigures) if each.name != "cold")
"""The names of all counts."""
