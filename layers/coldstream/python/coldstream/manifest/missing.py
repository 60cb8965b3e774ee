"""Why offsets are missing: announced losses, segments in quarantine, and the reasons of gaps that follow from them.

Losses and quarantines are recorded whether or not there is a gap, and stay. A loss past the tail waits for the commit
that makes the gap; a loss whose offsets are archived after all has none. A gap's reason follows from these records
alone, so the order in which they and the gap appear does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from coldstream.errors import LostRaceError
from coldstream.manifest.entry import Gap, Head, Loss, Missing, Quarantine

MAX_REASONS = 3
"""Reasons that a gap lists; after them it tells how many more there are."""


def with_reason(gap: Gap, missing: Iterable[Missing]) -> Gap:
    """Return the gap with the reasons of everything that together covers it, or with None if any offset is unexplained.

    Of records that begin at the same offset the longest comes first, and a loss comes before a quarantine.
    """
    about = [one for one in missing if one.first_offset < gap.next_offset and gap.first_offset < one.next_offset]
    # A total order: transactions compare the reasons of gaps, so the same records must give the same text.
    about.sort(key=lambda one: (one.first_offset, -one.next_offset, isinstance(one, Quarantine), one.reason))
    reached = gap.first_offset
    reasons: dict[str, None] = {}
    for one in about:
        if one.first_offset > reached or reached >= gap.next_offset:
            break
        if one.next_offset > reached:
            reached = one.next_offset
            reasons[_reason_of(one)] = None
    return replace(gap, reason=_joined(list(reasons)) if reached >= gap.next_offset else None)


def check_all_missing(head: Head, missing: Collection[Missing]) -> None:
    """Raise LostRaceError unless these are all losses and quarantined segments that the head counts.

    A shorter list, as a read has it that shows half of a change, would give a gap the wrong reason. The conditions of
    the change could not tell, as they do not name what was not read.
    """
    quarantined = [item for item in missing if isinstance(item, Quarantine)]
    further_copies = sum(item.copies - 1 for item in quarantined)
    counts = len(missing) - len(quarantined), len(quarantined), further_copies
    if counts != (head.losses, head.quarantined, head.quarantined_again):
        raise LostRaceError(f"losses and quarantined segments of {head.stream} changed while they were read")


def is_known(new: Missing, known: Iterable[Missing]) -> bool:
    """Tell whether `new` adds nothing: known losses cover the loss, or this very copy is already in quarantine."""
    match new:
        case Loss():
            losses = [one for one in known if isinstance(one, Loss)]
            return with_reason(Gap(new.first_offset, new.next_offset), losses).reason is not None
        case Quarantine():
            return any(
                isinstance(one, Quarantine) and is_of_same_item(one, new) and one.key == new.key for one in known
            )


def is_of_same_item(one: Missing, other: Missing) -> bool:
    """Tell whether one replaces the other: both are losses, or both quarantines, of the same offsets."""
    offsets = (one.first_offset, one.next_offset)
    return type(one) is type(other) and offsets == (other.first_offset, other.next_offset)


def _reason_of(one: Missing) -> str:
    return one.reason if isinstance(one, Loss) else f"in quarantine: {one.reason}"


def _joined(reasons: Sequence[str]) -> str:
    more = len(reasons) - MAX_REASONS
    return "; ".join((*reasons[:MAX_REASONS], *([f"and {more} more"] if more > 0 else [])))
