"""Items of one stream as they were at one moment, the head among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from coldstream.manifest.entry import FragmentEntry, Gap, Head, Row
from coldstream.store.sortkeys import gap_key, log_key
from coldstream.units import Offset

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`items` are by sort key. One that was asked for and is not in them did not exist at that moment."""

    head: Head
    items: Mapping[str, Row]

    def get(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """Return the item of a sort key, None if there was none."""
        found = self.items.get(key)
        return found if isinstance(found, kind) else None

    def entry(self, next_offset: Offset) -> FragmentEntry | None:
        """Return the entry that ends at an offset."""
        return self.get(log_key(next_offset), FragmentEntry)

    def gap(self, first_offset: Offset) -> Gap | None:
        """Return the gap that begins at an offset."""
        return self.get(gap_key(first_offset), Gap)
