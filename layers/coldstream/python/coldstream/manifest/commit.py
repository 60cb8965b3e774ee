"""Plan the changes that add a fragment entry to a stream's log, or record what is missing.

Pure: from the state as read to the change to write. A change happens only if the head still has the revision that was
read, which makes the commits of one stream serial, and if every other item that the plan relies on still has its
version. So every plan sees the whole state, and the resulting log depends on which fragments were committed, not on
their order:

- Links: an entry's `prior_offset` and `prior_timestamp` describe all entries before it. The running timestamp that
  follows from them never falls along the log, so one Query can find a timestamp. Links also prove absence: if an
  entry's item still has the link that was read, nothing lies between it and the entry before.
- Gaps: every hole between two neighbours has a gap item, written here, with its reason if that is known. Links tell
  where the holes are, so plans need not read the items; they only require that the items fit.
- Totals: the head's totals are sums over the entries.
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
from coldstream.manifest.floors import check_floors
from coldstream.manifest.history import check_epochs
from coldstream.manifest.missing import is_known, is_of_same_item, with_reason
from coldstream.manifest.sparse import greatest
from coldstream.units import Epoch, Offset, TimestampMs

MAX_RELINKS = MAX_ITEMS - 8
"""Successors that the change which adds an entry may relink, beside entry, head, registration and event, up to two
gaps, and two required neighbours."""

MAX_APPENDS = 64
"""Entries that one change appends at most: the event's item holds all of them, and has 400 KB of room."""

MAX_GAPS = MAX_ITEMS - 4
"""Gaps in a change that records something missing, beside that item, head, registration and event."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The part of the manifest around a new entry.

    `before` is the nearest entry that ends at or before it. `after` are the entries that end past its first offset, in
    order: those that overlap it, if any, then its successors, up to the first that `is_settled`. An append needs
    neither. `missing` is everything known to be missing, read only if the new entry `makes_gap`.
    """

    head: Head
    before: FragmentEntry | None = None
    after: Sequence[FragmentEntry] = ()
    missing: Sequence[Missing] = ()


def plan_commit(around: Neighbourhood, entry: FragmentEntry, at: TimestampMs) -> Change:
    """Plan adding `entry`, or, if too many successors need new links first, the next batch of links.

    The caller writes the change and, unless it adds the entry, plans again on `after_raise`. Raises OverlapError if the
    log already covers part of the entry, ContradictionError if the entry is of another history than its neighbours, and
    a RemovedError if the head does not admit it (`manifest.floors`): reading and planning again would change nothing.
    Raises LostRaceError if the neighbourhood shows half of a change.
    """
    check_floors(around.head, entry)
    _check_chain(around, entry)
    for other in around.after:
        if other.first_offset < entry.next_offset:
            held = f"that of an entry, {other.first_offset} to {other.next_offset - 1}"
            raise OverlapError(entry.key, entry.first_offset, entry.next_offset, held)
    check_epochs(entry, around.before, next(iter(around.after), None), tail_epoch=_tail_epoch(around.head, entry))
    entry = _linked(entry, around.before, around.head)
    relinks, settled = _relinks(entry, around.after, around.head)
    if fitting((around.after[number] for number in range(len(relinks))), MAX_RELINKS) < len(relinks):
        # Clocks ran backwards and the entry came late. Raise the farthest links first: in any other order the running
        # timestamps would fall along the log between two batches, and a lookup would miss entries. One that is too
        # great only costs a lookup another page. Raise the head's greatest timestamp with the first batch: entries that
        # are appended meanwhile inherit it.
        head = replace(
            around.head,
            revision=around.head.revision + 1,
            greatest_timestamp=greatest((around.head.greatest_timestamp, entry.greatest_timestamp)),
        )
        farthest = fitting((around.after[number] for number in reversed(range(len(relinks)))), MAX_ITEMS - 2)
        # Of the entry that is on its way, which need never come.
        raised = JournalEvent(
            head.revision, JournalKind.LINKS_RAISED, at, entry.first_offset, entry.next_offset, key=entry.key
        )
        return Change(head, raised, _raised_only(relinks[-farthest:]))
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
    return Change(head, event, (PutEntry(entry), *relinks, *gap_writes, *required))


def plan_appends(head: Head, entries: Sequence[FragmentEntry], at: TimestampMs) -> Change:
    """Plan appending entries that follow one another, 1 to MAX_APPENDS, to a log that ends where they begin.

    They become part of the log at once: whoever reads it sees all of them, or none. Raises as `plan_commit`, also
    OverlapError if the log goes on by now.
    """
    if not 1 <= len(entries) <= MAX_APPENDS:
        raise ValueError(f"{len(entries)} entries are not 1 to {MAX_APPENDS}")
    if not is_append(head, entries[0]):
        raise OverlapError(entries[0].key, entries[0].first_offset, entries[0].next_offset, f"up to {head.next_offset}")
    if any(one.next_offset != following.first_offset for one, following in pairwise(entries)):
        raise ValueError("entries that are appended at once follow one another")
    last, writes = head, list[Write]()
    for entry in entries:
        change = plan_commit(Neighbourhood(last), entry, at)
        last = change.head
        writes += change.writes
    last = replace(last, revision=head.revision + 1)
    event = JournalEvent(
        last.revision,
        JournalKind.FRAGMENT_COMMITTED,
        at,
        entries[0].first_offset,
        entries[-1].next_offset,
        key=entries[0].key,
        detail=f"{len(entries)} fragments" if len(entries) > 1 else None,
    )
    return Change(last, event, tuple(writes))


def after_raise(around: Neighbourhood, change: Change) -> Neighbourhood:
    """Return the neighbourhood after a change that only relinked, up to the nearest entry that it relinked."""
    raised = change.of(Relink)[0]
    number = next(n for n, successor in enumerate(around.after) if successor.next_offset == raised.next_offset)
    settled = replace(around.after[number], prior_timestamp=raised.prior_timestamp)
    return replace(around, head=change.head, after=(*around.after[:number], settled))


def plan_missing(
    head: Head, new: Missing, known: Sequence[Missing], gaps: Sequence[Gap], *, is_checked: bool = True
) -> Change | None:
    """Plan recording what is missing, and explaining the gaps that it covers; None if everything is recorded already.

    `known` is everything known to be missing, and `gaps` are the gaps that overlap `new`, at most MAX_GAPS. If there
    are more, the caller plans the others in changes of their own, with `is_checked` False. Those changes are written
    even if they change nothing: only a written change proves that the gaps are still these.
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
        if is_checked and explained == list(gaps):
            return None
        kind = JournalKind.GAPS_EXPLAINED
        event = JournalEvent(head.revision, kind, new.at, new.first_offset, new.next_offset, detail=new.reason)
        return Change(head, event, gap_writes)
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
    return Change(head, event, (*gap_writes, write))


def is_append(head: Head, entry: FragmentEntry) -> bool:
    """Tell whether `entry` comes after everything in the log. A plan then needs the head alone."""
    return head.next_offset is None or entry.first_offset >= head.next_offset


def makes_gap(around: Neighbourhood, entry: FragmentEntry) -> bool:
    """Tell whether `entry` leaves a gap beside it. A plan then needs everything known to be missing."""
    return next(_holes(around, entry), None) is not None


def is_settled(successor: FragmentEntry, entry: FragmentEntry) -> bool:
    """Tell whether the entries before `successor` are as late as `entry`. No entry after it then needs new links."""
    return successor.prior_timestamp is not None and successor.prior_timestamp >= entry.greatest_timestamp


def _check_chain(around: Neighbourhood, entry: FragmentEntry) -> None:
    """Raise LostRaceError unless the neighbourhood is an unbroken chain, from the entry before on."""
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
        return replace(entry, prior_offset=_tail(head), prior_timestamp=head.greatest_timestamp)
    if before is None:
        # What was removed before it counts as it did for the entry that is the first one now.
        return replace(entry, prior_offset=None, prior_timestamp=head.floor_timestamp)
    return replace(entry, prior_offset=before.next_offset, prior_timestamp=before.running_timestamp)


def _tail(head: Head) -> Offset | None:
    """Return where the last entry ends; None for a log without entries, even if its head remembers a tail."""
    return None if head.first_offset is None else head.next_offset


def _tail_epoch(head: Head, entry: FragmentEntry) -> Epoch | None:
    """Return the epoch at the tail if the entry is an append: then the head is all that was read of the log."""
    return head.epoch if is_append(head, entry) else None


def _relinks(
    entry: FragmentEntry, after: Sequence[FragmentEntry], head: Head
) -> tuple[tuple[Relink, ...], FragmentEntry | None]:
    """Return new links for the next successor, and for all whose prior timestamp is too small.

    Beside them comes the successor that ended the walk by being late enough already, if one did: the plan relies on it.
    Entries after a successor whose running timestamp stays the same cannot change.

    The entry before a successor is the last one that ends at or before its first offset. Entries that an interrupted
    compaction left behind lie within a later entry, and so do not count as before it.
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
    """Raise only the timestamps: the new entry is not in the log yet, so no prior offset may name it."""
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
    """Yield the holes between the entry and its neighbours."""
    if is_append(around.head, entry):
        prior_offset = _tail(around.head)
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
        epoch=entry.epoch if next_offset == entry.next_offset else head.epoch,  # an append's; a late entry leaves it
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
