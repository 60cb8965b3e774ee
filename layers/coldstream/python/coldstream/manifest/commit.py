"""Plan the transaction that adds a fragment entry to a stream's log, and that which says what is missing.

Pure: from the state as read to the change to write. The change holds only if the head still has the revision that was
read, which makes the commits of one stream serial, and if every other item that the plan relies on has the version that
was read; so every plan sees the whole state, and the log that results depends on which fragments were committed, not on
their order:

- links: an entry's `prior_offset` and `prior_timestamp` describe all entries before it. The running timestamp made of
  them never falls along the log, which is what lets one Query find a timestamp. They also prove what is not there: an
  entry whose item still has the link that was read has nothing between itself and the entry before.
- gaps: every hole between two neighbours has a gap item, made and filled here, with the reason if that is known. As
  links say where holes are, the items need not be read, only be what they have to be.
- totals: the head's are sums over the entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from coldstream.errors import LostRaceError, OverlapError
from coldstream.manifest.chain import check_neighbours
from coldstream.manifest.change import (
    MAX_ITEMS,
    Change,
    DeleteGap,
    EntryVersion,
    PutEntry,
    PutEvent,
    PutGap,
    PutLoss,
    PutQuarantine,
    Relink,
    ReplaceGap,
    RequireEntry,
    RequireGap,
    Write,
    fitting,
)
from coldstream.manifest.entry import (
    FragmentEntry,
    Gap,
    Head,
    JournalEvent,
    JournalKind,
    Loss,
    Missing,
    Quarantine,
)
from coldstream.manifest.history import check_epochs
from coldstream.manifest.missing import is_known, is_of_same_item, with_reason
from coldstream.manifest.sparse import greatest
from coldstream.units import Epoch, TimestampMs

MAX_RELINKS = MAX_ITEMS - 8
"""Successors whose links the change that adds an entry may update, beside entry, head, registration and event, up to
two gaps, and the two neighbours that stay as they are."""

MAX_GAPS = MAX_ITEMS - 4
"""Gaps that the change which says what is missing may be of, beside that, head, registration and event."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What the manifest holds around a new entry.

    `before` is the nearest entry that ends at or before it, `after` the entries that end past its first offset, in
    order: those that overlap it, if any, then its successors, up to the first that `is_settled`; both are empty for
    what `is_append`. `missing` is what is known to be missing, where the new entry `makes_gap`.
    """

    head: Head
    before: FragmentEntry | None = None
    after: Sequence[FragmentEntry] = ()
    missing: Sequence[Missing] = ()


def plan_commit(around: Neighbourhood, entry: FragmentEntry, at: TimestampMs) -> Change:
    """Plan adding `entry`, or, where too many successors need new links first, the next batch of those.

    The caller writes the change and, unless it put the entry, plans again on what is then `after_raise`. Raises
    OverlapError when the log already covers part of the entry, ContradictionError when it is of another history than
    its neighbours: reading and planning again would change neither. Raises LostRaceError when what was read shows half
    of a change.
    """
    _check_chain(around, entry)
    for other in around.after:
        if other.first_offset < entry.next_offset:
            held = f"that of an entry, {other.first_offset} to {other.next_offset - 1}"
            raise OverlapError(entry.key, entry.first_offset, entry.next_offset, held)
    check_epochs(entry, around.before, next(iter(around.after), None), tail_epoch=_tail_epoch(around.head, entry))
    entry = _linked(entry, around.before, around.head)
    relinks, settled = _relinks(entry, around.after, around.head)
    if fitting((around.after[number] for number in range(len(relinks))), MAX_RELINKS) < len(relinks):
        # Clocks ran backwards and the entry came late. Farthest first: the running timestamps never fall on the way,
        # and one that is too great costs a lookup another page, never an answer. The head's goes first of all, for
        # what is appended meanwhile takes it over.
        head = replace(
            around.head,
            revision=around.head.revision + 1,
            greatest_timestamp=greatest((around.head.greatest_timestamp, entry.greatest_timestamp)),
        )
        farthest = fitting((around.after[number] for number in reversed(range(len(relinks)))), MAX_ITEMS - 1)
        return Change(head, _raised_only(relinks[-farthest:]))
    gap_writes = _gap_writes(around, entry)
    new_gaps = sum(isinstance(write, PutGap) - isinstance(write, DeleteGap) for write in gap_writes)
    head = _with_entry(around.head, entry, gaps=new_gaps)
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.FRAGMENT_COMMITTED,
        at=at,
        first_offset=entry.first_offset,
        next_offset=entry.next_offset,
        key=entry.key,
    )
    required = (RequireEntry(EntryVersion.of(other)) for other in (around.before, settled) if other is not None)
    return Change(head, (PutEvent(event), PutEntry(entry), *relinks, *gap_writes, *required))


def after_raise(around: Neighbourhood, change: Change) -> Neighbourhood:
    """Return the neighbourhood as a change that only gave new links leaves it, without what is settled by it."""
    raised = change.of(Relink)[0]
    number = next(n for n, successor in enumerate(around.after) if successor.next_offset == raised.next_offset)
    settled = replace(around.after[number], prior_timestamp=raised.prior_timestamp)
    return replace(around, head=change.head, after=(*around.after[:number], settled))


def plan_missing(
    head: Head, new: Missing, known: Sequence[Missing], gaps: Sequence[Gap], *, is_checked: bool = True
) -> Change | None:
    """Plan writing down what is missing, and telling gaps; None when all of that is written.

    `known` is all that is known to be missing, `gaps` are those that overlap `new`, MAX_GAPS at most. Of more the
    caller plans the others in changes of their own, with `is_checked` False: they are written even where nothing
    changes, for only a change proves that these are the gaps.
    """
    is_new = not is_known(new, known)
    same = next((one for one in known if is_of_same_item(one, new)), None)
    others = [one for one in known if one is not same]
    if is_new and isinstance(new, Quarantine) and isinstance(same, Quarantine):
        new = replace(new, copies=same.copies + 1)
    explained = [with_reason(gap, [*others, new] if is_new else known) for gap in gaps]
    gap_writes = tuple(
        RequireGap(before) if before == after else ReplaceGap(before, after)
        for before, after in zip(gaps, explained, strict=True)
    )
    head = replace(head, revision=head.revision + 1)
    if not is_new:
        return None if is_checked and explained == list(gaps) else Change(head, gap_writes)
    write: Write
    match new:
        case Loss():
            kind, key, write = JournalKind.SEGMENT_LOST, None, PutLoss(new)
            head = replace(head, losses=head.losses + 1)
        case Quarantine():
            kind, key, write = JournalKind.SEGMENT_QUARANTINED, new.key, PutQuarantine(new)
            if same is None:
                head = replace(head, quarantined=head.quarantined + 1)
            else:
                head = replace(head, quarantined_again=head.quarantined_again + 1)
    event = JournalEvent(head.revision, kind, new.at, new.first_offset, new.next_offset, key=key, detail=new.reason)
    return Change(head, (PutEvent(event), *gap_writes, write))


def is_append(head: Head, entry: FragmentEntry) -> bool:
    """Tell whether `entry` comes after everything in the log, so that nothing but the head need be read."""
    return head.next_offset is None or entry.first_offset >= head.next_offset


def makes_gap(around: Neighbourhood, entry: FragmentEntry) -> bool:
    """Tell whether `entry` leaves a gap beside it, so that what is known to be missing has to be read."""
    return next(_holes(around, entry), None) is not None


def is_settled(successor: FragmentEntry, entry: FragmentEntry) -> bool:
    """Tell whether what precedes `successor` is as late as `entry`, so that no entry after it needs new links."""
    return successor.prior_timestamp is not None and successor.prior_timestamp >= entry.greatest_timestamp


def _check_chain(around: Neighbourhood, entry: FragmentEntry) -> None:
    """Raise LostRaceError unless what was read is an unbroken chain, from the entry before on."""
    if is_append(around.head, entry):
        return
    if not around.after:
        raise LostRaceError(f"the tail is {around.head.next_offset}, and no entry past {entry.first_offset} shows")
    first = around.after[0]
    if first.prior_offset != (None if around.before is None else around.before.next_offset):
        raise LostRaceError(f"half of a change shows before offset {first.first_offset}")
    for one, following in pairwise(around.after):
        check_neighbours(one, following)


def _linked(entry: FragmentEntry, before: FragmentEntry | None, head: Head) -> FragmentEntry:
    if is_append(head, entry):
        return replace(entry, prior_offset=head.next_offset, prior_timestamp=head.greatest_timestamp)
    if before is None:
        return replace(entry, prior_offset=None, prior_timestamp=None)
    return replace(entry, prior_offset=before.next_offset, prior_timestamp=before.running_timestamp)


def _tail_epoch(head: Head, entry: FragmentEntry) -> Epoch | None:
    """Return the epoch at the tail, where the entry is appended there: of what is before it, only the head is read."""
    return head.epoch if is_append(head, entry) else None


def _relinks(
    entry: FragmentEntry, after: Sequence[FragmentEntry], head: Head
) -> tuple[tuple[Relink, ...], FragmentEntry | None]:
    """List the successors whose links change: the next one, and all whose prior timestamp is less than it must be.

    Returned beside them is the one that is late enough already, where that is what ends them. Nothing has to be known
    of what comes after a successor whose running timestamp stays what it is.

    Before each comes the last that ends at or before its first offset: what an interrupted compaction has left lies
    within a later entry, and not before it.
    """
    relinks: list[Relink] = []
    passed = [(entry.next_offset, entry.running_timestamp)]
    for number, successor in enumerate(after):
        prior_offset, prior_timestamp = next(link for link in reversed(passed) if link[0] <= successor.first_offset)
        if number > 0 and successor.prior_timestamp is not None and successor.prior_timestamp >= prior_timestamp:
            return tuple(relinks), successor
        running = max(prior_timestamp, successor.greatest_timestamp)
        relinks.append(Relink(EntryVersion.of(successor), prior_offset, prior_timestamp, running))
        passed.append((successor.next_offset, running))
        if running == successor.running_timestamp:
            return tuple(relinks), None
    if after and after[-1].next_offset != head.next_offset:
        raise LostRaceError(f"the tail is {head.next_offset}, and no entry past {after[-1].next_offset} shows")
    return tuple(relinks), None


def _raised_only(relinks: Sequence[Relink]) -> tuple[Relink, ...]:
    """Raise timestamps without announcing an entry that is not there yet: the prior offsets stay as they are."""
    return tuple(replace(relink, prior_offset=relink.before.prior_offset) for relink in relinks)


def _gap_writes(around: Neighbourhood, entry: FragmentEntry) -> tuple[PutGap | ReplaceGap | DeleteGap, ...]:
    """Return the writes that fill the gap around the entry, and put the gaps that the entry leaves beside it."""
    new = [with_reason(gap, around.missing) for gap in _holes(around, entry)]
    if around.before is None or not around.after or around.before.next_offset == around.after[0].first_offset:
        return tuple(map(PutGap, new))
    old = Gap(around.before.next_offset, around.after[0].first_offset)
    if not new or new[0].first_offset != old.first_offset:
        return DeleteGap(old), *map(PutGap, new)
    # The gap before the entry begins where the old one did, and so has its item: one write for both.
    return ReplaceGap(old, new[0]), *map(PutGap, new[1:])


def _holes(around: Neighbourhood, entry: FragmentEntry) -> Iterator[Gap]:
    """Yield what the entry leaves uncovered between itself and its neighbours."""
    if is_append(around.head, entry):
        prior_offset = around.head.next_offset
    else:
        prior_offset = None if around.before is None else around.before.next_offset
    if prior_offset is not None and prior_offset < entry.first_offset:
        yield Gap(prior_offset, entry.first_offset)
    if around.after and entry.next_offset < around.after[0].first_offset:
        yield Gap(entry.next_offset, around.after[0].first_offset)


def _with_entry(head: Head, entry: FragmentEntry, *, gaps: int) -> Head:
    is_first = head.first_offset is None or entry.first_offset < head.first_offset
    next_offset = entry.next_offset if head.next_offset is None else max(head.next_offset, entry.next_offset)
    return replace(
        head,
        revision=head.revision + 1,
        first_offset=entry.first_offset if is_first else head.first_offset,
        next_offset=next_offset,
        epoch=entry.epoch if next_offset == entry.next_offset else head.epoch,
        first_timestamp=entry.first_timestamp if is_first else head.first_timestamp,
        greatest_timestamp=greatest((head.greatest_timestamp, entry.greatest_timestamp)),
        fragments=head.fragments + 1,
        chunks=head.chunks + entry.chunks,
        records=head.records + entry.records,
        messages=head.messages + entry.messages,
        data_bytes=head.data_bytes + entry.data_bytes,
        object_bytes=head.object_bytes + entry.object_bytes,
        gaps=head.gaps + gaps,
    )
