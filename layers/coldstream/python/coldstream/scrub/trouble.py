"""What a check says: a kind of damage, where, and in what words; `Finding` adds the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.scrub.damage import Damage, Finding
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class Trouble:
    """A damage of one stream, before it is confirmed. The fields are those of `Finding`."""

    damage: Damage
    detail: str
    first_offset: Offset | None = None
    next_offset: Offset | None = None
    key: str | None = None

    @classmethod
    def of(cls, damage: Damage, entry: FragmentEntry, detail: str) -> Self:
        """Return a damage of one fragment."""
        return cls(damage, detail, entry.first_offset, entry.next_offset, entry.key)

    def finding(self, stream: StreamId) -> Finding:
        """Return it as a finding about a stream."""
        return Finding(self.damage, stream, self.first_offset, self.next_offset, self.key, self.detail)


def differs(what: str, *, expected: object, found: object) -> str:
    """Return the words for a value that is another than it has to be."""
    return f"{what} is {found}, and has to be {expected}"
