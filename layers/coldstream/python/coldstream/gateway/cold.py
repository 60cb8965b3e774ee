"""Subscriptions that are served from the archive, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ColdRow:
    """Who reads what from the archive, and how far it is."""

    client: str
    vhost: str
    stream: str
    offset: int
    """What it is sent next."""
    behind: int
    """Offsets up to the archive's tail."""


class ColdReader(Protocol):
    """A subscription while the archive serves it."""

    def row(self) -> ColdRow:
        """Return how far it is."""
        ...
