"""Plan the transaction that adds a fragment entry to a stream's log, and that which says what is missing.

Pure: from the state as read to the change to write. The change holds only if the head still has the revision that was
read, which makes the commits of one stream serial; so every plan sees the whole state, and the log that results depends
on which fragments were committed, not on their order:

- links: an entry's `prior_offset` and `prior_timestamp` describe all entries before it. The running timestamp made of
  them never falls along the log, which is what lets one Query find a timestamp.
- gaps: every hole between two neighbours has a gap item, made and filled here, with the reason if that is known.
- totals: the head's are sums over the entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from coldstream.errors import OverlapError
from coldstream.manifest.entry import (
    FragmentEntry,
    Gap,
    Head,
    JournalEvent,
    JournalKind,
    Loss,
    Missing,
    Quarantine,
    Tombstone,
)
from coldstream.manifest.history import check_epochs
from coldstream.manifest.missing import is_known, is_of_same_item, with_reason
from coldstream.manifest.sparse import greatest
from coldstream.units import Epoch, Offset, TimestampMs

MAX_ITEMS = 10
"""Of one transaction."""

MAX_RELINKS = MAX_ITEMS - 6
"""Successors whose links the change that adds an entry may update, beside entry, head, event and up to three gaps."""

MAX_GAPS = MAX_ITEMS - 4
"""Gaps whose reason the change that says what is missing may update, beside that, head, registration and event."""


@dataclass(frozen=True, slots=True)
class Relink:
    """New links for the entry that is there under `next_offset`; what else it holds stays."""

    next_offset: Offset
    prior_offset: Offset | None
    prior_timestamp: TimestampMs | None
    running_timestamp: TimestampMs


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction on a stream: all of it happens, and only if the head's revision is `head.revision - 1`.

    `put_entry` adds an entry where there is none, `replace_entry` takes the place of the one that ends where it does,
    `delete_entries` are the next offsets of entries that are there.
    """

    head: Head
    event: JournalEvent | None = None
    put_entry: FragmentEntry | None = None
    relinks: tuple[Relink, ...] = ()
    put_gaps: tuple[Gap, ...] = ()
    delete_gaps: tuple[Offset, ...] = ()
    put_missing: Missing | None = None
    replace_entry: FragmentEntry | None = None
    delete_entries: tuple[Offset, ...] = ()
    put_tombstones: tuple[Tombstone, ...] = ()
    delete_tombstones: tuple[Tombstone, ...] = ()

    @property
    def items(self) -> int:
        """Items that the transaction writes, with the one that registers a new stream; at most MAX_ITEMS."""
        always = 2 if self.head.revision == 1 else 1
        single = sum(one is not None for one in (self.event, self.put_entry, self.put_missing, self.replace_entry))
        gaps = len(self.put_gaps) + len(self.delete_gaps)
        tombstones = len(self.put_tombstones) + len(self.delete_tombstones)
        return always + single + len(self.relinks) + gaps + len(self.delete_entries) + tombstones


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What the manifest holds around a new entry.

    `before` is the nearest entry that ends at or before it, `after` the entries that end past its first offset, in
    order: those that overlap it, if any, then its successors, up to the first that `is_settled`. `gap` is the gap item
    that the new entry falls into. `missing` is what is known to be missing, where the new entry `makes_gap`.
    """

    head: Head
    before: FragmentEntry | None = None
    after: Sequence[FragmentEntry] = ()
    gap: Gap | None = None
    missing: Sequence[Missing] = ()


def plan_commit(around: Neighbourhood, entry: FragmentEntry, at: TimestampMs) -> Change:
    """Plan adding `entry`, or, where too many successors need new links first, the next batch of those.

    The caller writes the change and, unless it put the entry, plans again on what is then `after_raise`. Raises
    OverlapError when the log already covers part of the entry, ContradictionError when it is of another history than
    its neighbours: reading and planning again would change neither.
    """
    for other in around.after:
        if other.first_offset < entry.next_offset:
            held = f"that of an entry, {other.first_offset} to {other.next_offset - 1}"
            raise OverlapError(entry.key, entry.first_offset, entry.next_offset, held)
    check_epochs(entry, around.before, next(iter(around.after), None), tail_epoch=_tail_epoch(around.head, entry))
    entry = _linked(entry, around.before, around.head)
    relinks = _relinks(entry, around.after)
    if len(relinks) > MAX_RELINKS:
        # Clocks ran backwards and the entry came late. Farthest first: the running timestamps never fall on the way,
        # and one that is too great costs a lookup another page, never an answer. The head's goes first of all, for
        # what is appended meanwhile takes it over.
        head = replace(
            around.head,
            revision=around.head.revision + 1,
            greatest_timestamp=greatest((around.head.greatest_timestamp, entry.greatest_timestamp)),
        )
        return Change(head, relinks=_raised_only(relinks[1 - MAX_ITEMS :], around.after))
    put_gaps, delete_gaps = _gaps(around, entry)
    head = _with_entry(around.head, entry, gaps=len(put_gaps) - len(delete_gaps) - _replaced(around.gap, put_gaps))
    event = JournalEvent(
        revision=head.revision,
        kind=JournalKind.FRAGMENT_COMMITTED,
        at=at,
        first_offset=entry.first_offset,
        next_offset=entry.next_offset,
        key=entry.key,
    )
    return Change(head, event, entry, relinks, put_gaps, delete_gaps)


def after_raise(around: Neighbourhood, change: Change) -> Neighbourhood:
    """Return the neighbourhood as a change that only gave new links leaves it, without what is settled by it."""
    raised = change.relinks[0]
    number = next(n for n, successor in enumerate(around.after) if successor.next_offset == raised.next_offset)
    settled = replace(around.after[number], prior_timestamp=raised.prior_timestamp)
    return replace(around, head=change.head, after=(*around.after[:number], settled))


def plan_missing(head: Head, new: Missing, known: Sequence[Missing], gaps: Sequence[Gap]) -> Change | None:
    """Plan writing down what is missing, and telling the gaps; None when all of that is written.

    `known` is all that is known to be missing, `gaps` are those that overlap `new`. Where there are many of them, the
    caller writes the change and plans again.
    """
    is_new = not is_known(new, known)
    others = [one for one in known if not is_of_same_item(one, new)]
    told = [with_reason(gap, [*others, new] if is_new else known) for gap in gaps]
    put_gaps = tuple(gap for gap, before in zip(told, gaps, strict=True) if gap != before)[:MAX_GAPS]
    head = replace(head, revision=head.revision + 1)
    if not is_new:
        return Change(head, put_gaps=put_gaps) if put_gaps else None
    added = 1 if len(others) == len(known) else 0
    match new:
        case Loss():
            kind, key = JournalKind.SEGMENT_LOST, None
            head = replace(head, losses=head.losses + added)
        case Quarantine():
            kind, key = JournalKind.SEGMENT_QUARANTINED, new.key
            head = replace(head, quarantined=head.quarantined + added)
    event = JournalEvent(head.revision, kind, new.at, new.first_offset, new.next_offset, key=key, detail=new.reason)
    return Change(head, event, put_missing=new, put_gaps=put_gaps)


def is_append(head: Head, entry: FragmentEntry) -> bool:
    """Tell whether `entry` comes after everything in the log, so that nothing but the head need be read."""
    return head.next_offset is None or entry.first_offset >= head.next_offset


def makes_gap(around: Neighbourhood, entry: FragmentEntry) -> bool:
    """Tell whether `entry` leaves a gap beside it, so that what is known to be missing has to be read."""
    return next(_holes(around, entry), None) is not None


def is_settled(successor: FragmentEntry, entry: FragmentEntry) -> bool:
    """Tell whether what precedes `successor` is as late as `entry`, so that no entry after it needs new links."""
    return successor.prior_timestamp is not None and successor.prior_timestamp >= entry.greatest_timestamp


def _linked(entry: FragmentEntry, before: FragmentEntry | None, head: Head) -> FragmentEntry:
    if is_append(head, entry):
        return replace(entry, prior_offset=head.next_offset, prior_timestamp=head.greatest_timestamp)
    if before is None:
        return replace(entry, prior_offset=None, prior_timestamp=None)
    return replace(entry, prior_offset=before.next_offset, prior_timestamp=before.running_timestamp)


def _tail_epoch(head: Head, entry: FragmentEntry) -> Epoch | None:
    """Return the epoch at the tail, where the entry is appended there: of what is before it, only the head is read."""
    return head.epoch if is_append(head, entry) else None


def _relinks(entry: FragmentEntry, after: Sequence[FragmentEntry]) -> tuple[Relink, ...]:
    """List the successors whose links change: the next one, and all whose prior timestamp is less than it must be.

    Before each comes the last that ends at or before its first offset: what an interrupted compaction has left lies
    within a later entry, and not before it.
    """
    relinks: list[Relink] = []
    passed = [(entry.next_offset, entry.running_timestamp)]
    for number, successor in enumerate(after):
        prior_offset, prior_timestamp = next(link for link in reversed(passed) if link[0] <= successor.first_offset)
        if number > 0 and successor.prior_timestamp is not None and successor.prior_timestamp >= prior_timestamp:
            break
        running = max(prior_timestamp, successor.greatest_timestamp)
        relinks.append(Relink(successor.next_offset, prior_offset, prior_timestamp, running))
        passed.append((successor.next_offset, running))
    return tuple(relinks)


def _raised_only(relinks: Sequence[Relink], after: Sequence[FragmentEntry]) -> tuple[Relink, ...]:
    """Raise timestamps without announcing an entry that is not there yet: the prior offsets stay as they are."""
    prior_offsets = {successor.next_offset: successor.prior_offset for successor in after}
    return tuple(replace(relink, prior_offset=prior_offsets[relink.next_offset]) for relink in relinks)


def _gaps(around: Neighbourhood, entry: FragmentEntry) -> tuple[tuple[Gap, ...], tuple[Offset, ...]]:
    put = tuple(with_reason(gap, around.missing) for gap in _holes(around, entry))
    filled = around.gap is not None and all(gap.first_offset != around.gap.first_offset for gap in put)
    return put, (around.gap.first_offset,) if filled and around.gap is not None else ()


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


def _replaced(gap: Gap | None, put: Sequence[Gap]) -> int:
    """Count the gap items that a put overwrites rather than adds."""
    return sum(1 for new in put if gap is not None and new.first_offset == gap.first_offset)


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
