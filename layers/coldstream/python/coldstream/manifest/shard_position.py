"""A position in a sharded stream: one value, a version of the map and the next offset to read of each partition.

    v2,0:1042,1:977,2:0

Its text is the version after `v`, then number and next offset of each partition, by number. A partition that is not in
it is read from its beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from coldstream.errors import InvalidQueryError
from coldstream.units import MAX_OFFSET, Offset

_TEXT = re.compile(r"v(?P<version>[1-9][0-9]{0,8})(?P<offsets>(,[0-9]{1,4}:[0-9]{1,20})*)")


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """The next offset to read of each partition, by number, of a map at `version` or a later one."""

    version: int
    offsets: Mapping[int, Offset] = field(default_factory=dict)

    def __str__(self) -> str:
        return "".join((f"v{self.version}", *(f",{number}:{self.offsets[number]}" for number in sorted(self.offsets))))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a position's text. Raises InvalidQueryError."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidQueryError("position", f"{text[:80]!r} is not of the form v2,0:1042,1:977")
        offsets: dict[int, Offset] = {}
        for pair in filter(None, match["offsets"].split(",")):
            number, _, offset = pair.partition(":")
            if int(number) in offsets or int(offset) > MAX_OFFSET:
                raise InvalidQueryError("position", f"{pair!r} names a partition twice, or no offset")
            offsets[int(number)] = Offset(int(offset))
        return cls(int(match["version"]), offsets)

    def offset(self, number: int) -> Offset:
        """Return the next offset to read of a partition."""
        return self.offsets.get(number, Offset(0))
