"""The end of what is archived, and what is known to be lost there.

Past the tail there is what has not been archived yet, which the broker has, and what never will be: the losses that the
agent announced, and the segments in quarantine. Where these cover an offset, a reader who was sent to the broker for it
would wait there without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coldstream.manifest.entry import Gap, Head, Loss, Missing, Quarantine
from coldstream.manifest.missing import with_reason
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset

NEAREST = 8
"""Read of what begins at or before an offset: one of them covers it, or it is not known to be missing."""

FOLLOWING = 50
"""Read of what begins after an offset that is missing. Where more of it touches, it is another gap after this one."""


@dataclass(frozen=True, slots=True)
class Tail:
    """There is nothing to attach at: the broker has what comes from `next_offset` on."""

    next_offset: Offset


def past_tail(table: ManifestReads, head: Head, offset: Offset) -> Tail | Gap | None:
    """Tell what is at `offset`, which is at or past the tail of `head`: the gap, if it is known to be missing.

    What is missing joins where it touches, and so a gap may begin before `offset`, and never before the tail. Where
    `offset` is past what is missing, the answer is that end, and not the tail. None when the log has gone on meanwhile.

    Cost: nothing where nothing of the stream is missing, else one Query for losses, and one for segments in quarantine.
    Where that finds any past the tail, one that shows that they have not been archived after all, and before a gap is
    told, another for losses, and for segments in quarantine.
    """
    assert head.next_offset is not None
    life, tail = head.stream.incarnation, head.next_offset
    kinds: list[type[Missing]] = [*([Loss] if head.losses else []), *([Quarantine] if head.quarantined else [])]
    missing = [one for kind in kinds for one in table.missing_before(life, kind, offset, NEAREST)]
    if all(one.next_offset <= tail for one in missing):
        return Tail(tail)
    is_missing = any(one.next_offset > offset for one in missing)
    if is_missing:
        missing += [one for kind in kinds for one in table.missing_after(life, kind, offset, FOLLOWING)]
    # What is missing was read after the head: by now it may be archived.
    page = table.log_from_offset(life, offset, 1)
    if page.entries or page.head is None or page.head.next_offset != tail:
        return None
    if is_missing:
        return with_reason(_run(missing, tail, offset), missing)
    return Tail(max(one.next_offset for one in missing))


def _run(missing: Iterable[Missing], tail: Offset, offset: Offset) -> Gap:
    """Join what is missing around `offset`, from the tail on."""
    first_offset = next_offset = tail
    for one in sorted(missing, key=lambda one: (one.first_offset, one.next_offset)):
        if one.first_offset > next_offset:
            if next_offset > offset:
                break
            first_offset = one.first_offset
        next_offset = max(next_offset, one.next_offset)
    return Gap(first_offset, next_offset)
