"""Why offsets are missing: the losses that the agent announced, the segments in quarantine, and what they say of a gap.

They are written down whether or not there is a gap, and stay: a loss past the tail waits for the commit that makes the
gap, and one that turns out to be archived after all simply has none. A gap's reason follows from them alone, so it does
not matter which came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coldstream.manifest.entry import Gap, Loss, Missing, Quarantine

MAX_REASONS = 3
"""Reasons that a gap lists; a reader is told how many more there are."""


def with_reason(gap: Gap, missing: Iterable[Missing]) -> Gap:
    """Return the gap with the reason of what covers it wholly, alone or together; with None when some is unexplained.

    Of what begins at the same offset the longest comes first, and a loss before a segment in quarantine.
    """
    about = [one for one in missing if one.first_offset < gap.next_offset and gap.first_offset < one.next_offset]
    about.sort(key=lambda one: (one.first_offset, -one.next_offset, isinstance(one, Quarantine), one.reason))
    reached = gap.first_offset
    reasons: dict[str, None] = {}
    for one in about:
        if one.first_offset > reached or reached >= gap.next_offset:
            break
        if one.next_offset > reached:
            reached = one.next_offset
            reasons[_words(one)] = None
    return replace(gap, reason=_listed(list(reasons)) if reached >= gap.next_offset else None)


def is_known(new: Missing, known: Iterable[Missing]) -> bool:
    """Tell whether `new` says nothing new: losses cover it wholly; this copy of a segment is the one in quarantine."""
    match new:
        case Loss():
            losses = [one for one in known if isinstance(one, Loss)]
            return with_reason(Gap(new.first_offset, new.next_offset), losses).reason is not None
        case Quarantine():
            return any(
                isinstance(one, Quarantine) and is_of_same_item(one, new) and one.key == new.key for one in known
            )


def is_of_same_item(one: Missing, other: Missing) -> bool:
    """Tell whether one takes the other's place: losses or quarantines of the same offsets."""
    offsets = (one.first_offset, one.next_offset)
    return type(one) is type(other) and offsets == (other.first_offset, other.next_offset)


def _words(one: Missing) -> str:
    return one.reason if isinstance(one, Loss) else f"in quarantine: {one.reason}"


def _listed(reasons: Sequence[str]) -> str:
    more = len(reasons) - MAX_REASONS
    return "; ".join((*reasons[:MAX_REASONS], *([f"and {more} more"] if more > 0 else [])))
