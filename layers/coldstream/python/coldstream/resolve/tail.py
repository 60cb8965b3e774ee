"""The end of the archive, and what is known to be lost there.

Offsets past the tail are either not archived yet, and then the broker has them, or never will be: the losses that an
agent announced, and the segments in quarantine. A reader who was sent to the broker for such an offset would wait there
for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldstream.manifest.entry import Gap, Head, Loss, Missing, Quarantine
from coldstream.manifest.missing import with_reason
from coldstream.units import Offset

if TYPE_CHECKING:
    from coldstream.store.ports import ManifestReads

NEAREST = 8
"""Missing items read that begin at or before an offset. If none of them covers it, it is not known to be missing."""

FOLLOWING = 50
"""Missing items read that begin after a missing offset. If more of them adjoin, they are reported as another gap."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Nothing to attach at: the broker has the stream from `next_offset` on.

    `floor` is there if the start was an offset below it, and all of the log was removed.
    """

    next_offset: Offset
    floor: Offset | None = None


def past_tail(table: ManifestReads, head: Head, offset: Offset) -> Tail | Gap | None:
    """Return what is at `offset`, which is at or past the tail of `head`: a gap if that is known to be missing.

    Missing items that adjoin make one gap. So a gap may begin before `offset`, but never before the tail. If `offset`
    is past everything missing, the answer is the end of that, not the tail. None says that the log has grown meanwhile.

    Cost: nothing if nothing of the stream is missing. Else one Query for losses and one for quarantined segments. If
    any of these are past the tail, another Query shows that they were not archived after all; and before a gap is
    returned, one more each for losses and quarantined segments.
    """
    assert head.next_offset is not None
    incarnation, tail = head.stream.incarnation, head.next_offset
    kinds: list[type[Missing]] = [*([Loss] if head.losses else []), *([Quarantine] if head.quarantined else [])]
    missing = [one for kind in kinds for one in table.missing_before(incarnation, kind, offset, NEAREST)]
    if all(one.next_offset <= tail for one in missing):
        return Tail(tail)
    is_missing = any(one.next_offset > offset for one in missing)
    if is_missing:
        missing += [one for kind in kinds for one in table.missing_after(incarnation, kind, offset, FOLLOWING)]
    # The losses were read after the head, and by then may have been archived. Only a log that still ends at the head's
    # tail makes head and losses one state; else a gap could be reported over offsets that are archived.
    page = table.log_from_offset(incarnation, offset, 1)
    if page.entries or page.head is None or page.head.next_offset != tail:
        return None
    if is_missing:
        return with_reason(_run(missing, tail, offset), missing)
    return Tail(max(one.next_offset for one in missing))


def _run(missing: Iterable[Missing], tail: Offset, offset: Offset) -> Gap:
    """Join the missing items around `offset`, from the tail on."""
    first_offset = next_offset = tail
    for one in sorted(missing, key=lambda one: (one.first_offset, one.next_offset)):
        if one.first_offset > next_offset:
            if next_offset > offset:
                break
            first_offset = one.first_offset
        next_offset = max(next_offset, one.next_offset)
    return Gap(first_offset, next_offset)
