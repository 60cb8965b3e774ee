"""`LookedAt`: one object of the bucket, as the listing shows it and its key tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from coldstream.garbage.kinds import ObjectKind, kind_of
from coldstream.manifest.stream import Incarnation
from coldstream.store.parsed_keys import ParsedKey
from coldstream.store.ports import ListedObject
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class LookedAt:
    """An object that was listed. `parsed` is None if its key is not one of ours."""

    listed: ListedObject
    parsed: ParsedKey | None
    kind: ObjectKind

    @classmethod
    def of(cls, listed: ListedObject, parsed: ParsedKey | None) -> Self:
        """Tell the kind of an object by its key."""
        return cls(listed, parsed, kind_of(parsed))

    @property
    def key(self) -> str:
        """Its key, exactly."""
        return self.listed.key

    @property
    def last_modified(self) -> TimestampMs:
        """When S3 says that it was written."""
        return self.listed.last_modified

    @property
    def incarnation(self) -> Incarnation | None:
        """The stream that its key names, None if it names none."""
        return None if self.parsed is None else self.parsed.incarnation

    @property
    def first_offset(self) -> Offset:
        """The first offset that its key names. Only for kinds that have one."""
        assert self.parsed is not None, self.key
        assert self.parsed.first_offset is not None, self.key
        return self.parsed.first_offset

    @property
    def next_offset(self) -> Offset:
        """The next offset that its key names. Only for staged segments."""
        assert self.parsed is not None, self.key
        assert self.parsed.next_offset is not None, self.key
        return self.parsed.next_offset

    @property
    def generation(self) -> int:
        """The generation that a fragment's key names."""
        assert self.parsed is not None, self.key
        assert self.parsed.generation is not None, self.key
        return self.parsed.generation
