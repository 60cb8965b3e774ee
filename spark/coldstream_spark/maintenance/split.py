"""A long stream as ranges of offsets, about as long as each other."""

from __future__ import annotations

from coldstream.manifest.entry import Head
from coldstream.units import Offset


def borders(head: Head, most_fragments: int) -> tuple[Offset, ...]:
    """Return the offsets between the ranges of a stream, so that each has about `most_fragments`; none if it has less.

    The log is not read: fragments count as evenly long. Where small ones lie together, a range has more of them.
    """
    first, following = head.first_offset, head.next_offset
    ranges = -(-head.fragments // most_fragments)
    if first is None or following is None or ranges < 2:  # noqa: PLR2004  two are the least that have a border
        return ()
    found = (first + (following - first) * number // ranges for number in range(1, ranges))
    return tuple(Offset(offset) for offset in dict.fromkeys(found) if offset > first)
