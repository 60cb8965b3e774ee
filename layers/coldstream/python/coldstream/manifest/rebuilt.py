"""Plans of a rebuild: the changes that write a stream's manifest anew, from what the bucket has.

Pure. The entries come in the order of their offsets, many in one change, and get the links, gaps and totals that
commits would have given them one by one. Nobody else writes the stream meanwhile: the head's revision would tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coldstream.manifest.change import (
    MAX_BYTES,
    MAX_ITEMS,
    Change,
    PutEntry,
    PutErasure,
    PutGap,
    PutHold,
    PutLoss,
    PutQuarantine,
    PutTombstone,
    Write,
    entry_bytes,
)
from coldstream.manifest.entry import (
    Erasure,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    JournalKind,
    Loss,
    Missing,
    Quarantine,
    Tombstone,
)
from coldstream.manifest.missing import with_reason
from coldstream.manifest.sparse import greatest
from coldstream.units import TimestampMs

MAX_RECORDED_BYTES = 300_000
"""Bytes of the entries of one change, as the journal records them: DynamoDB takes 400 KB an item, the event's too."""

_FREE_ITEMS = MAX_ITEMS - 3
"""Writes of one change, beside head, event and, at revision 1, the registration."""

_RECORDED_ENTRY_BYTES = 500


@dataclass(frozen=True, slots=True)
class RebuiltEntry:
    """An entry without links, and the tombstones of the objects that it stands for."""

    entry: FragmentEntry
    tombstones: tuple[Tombstone, ...] = ()


def plan_records(
    head: Head,
    records: Sequence[Hold | Erasure | Loss | Quarantine | Tombstone],
    *,
    at: TimestampMs,
) -> Change:
    """Plan putting records that are no entries, at most `MAX_RECORDS`, none twice.

    A quarantine's `copies` is one above that of the item that is there. The first plan of a stream may have none: it
    registers the stream, and its head has what the bucket says of it.
    """
    writes: list[Write] = []
    for one in records:
        match one:
            case Hold():
                writes.append(PutHold(one))
                head = replace(head, holds=head.holds + 1)
            case Erasure():
                writes.append(PutErasure(None, one))
                head = replace(head, erasures=head.erasures + 1)
            case Loss():
                writes.append(PutLoss(one))
                head = replace(head, losses=head.losses + 1)
            case Quarantine():
                writes.append(PutQuarantine(one))
                is_first = one.copies == 1
                head = replace(
                    head,
                    quarantined=head.quarantined + is_first,
                    quarantined_again=head.quarantined_again + (not is_first),
                )
            case Tombstone():
                writes.append(PutTombstone(one))
    head = replace(head, revision=head.revision + 1)
    return Change(head, _event(head, at, f"{len(records)} records"), tuple(writes))


MAX_RECORDS = _FREE_ITEMS


def plan_entries(
    head: Head, rebuilt: Sequence[RebuiltEntry], missing: Iterable[Missing], *, at: TimestampMs
) -> tuple[Change, int]:
    """Plan adding the first of these entries, as many as one change takes; return the change, and how many they are.

    They come after everything in the log. One entry has at most `MAX_TOMBSTONES` tombstones; `missing` is everything
    that is known to be missing.
    """
    known = tuple(missing)
    writes: list[Write] = []
    size_bytes = recorded_bytes = count = gaps = 0
    planned = head
    for one in rebuilt:
        entry, gap = _linked(planned, one.entry)
        # One item at most for a gap: one more than is needed costs a change in a hundred, and no second count.
        items = len(writes) + 2 + len(one.tombstones)
        size_bytes += entry_bytes(entry)
        recorded_bytes += _recorded_bytes(entry)
        is_full = items > _FREE_ITEMS or size_bytes > MAX_BYTES or recorded_bytes > MAX_RECORDED_BYTES
        if count and is_full:
            break
        if gap is not None:
            writes.append(PutGap(with_reason(gap, known)))
            gaps += 1
        writes.append(PutEntry(entry))
        writes += map(PutTombstone, one.tombstones)
        planned = _with_entry(planned, entry)
        count += 1
    planned = replace(planned, revision=head.revision + 1, gaps=head.gaps + gaps)
    first = rebuilt[0].entry.first_offset
    event = replace(_event(planned, at, f"{count} fragments"), first_offset=first, next_offset=planned.next_offset)
    return Change(planned, event, tuple(writes)), count


MAX_TOMBSTONES = _FREE_ITEMS - 2


def _linked(head: Head, entry: FragmentEntry) -> tuple[FragmentEntry, Gap | None]:
    """Return the entry with its links, and the gap before it, if there is one."""
    is_first = head.first_offset is None or head.next_offset is None
    prior_offset = None if is_first else head.next_offset
    linked = replace(entry, prior_offset=prior_offset, prior_timestamp=head.greatest_timestamp)
    if prior_offset is None or prior_offset == entry.first_offset:
        return linked, None
    return linked, Gap(prior_offset, entry.first_offset)


def _with_entry(head: Head, entry: FragmentEntry) -> Head:
    is_first = head.first_offset is None
    return replace(
        head,
        first_offset=entry.first_offset if is_first else head.first_offset,
        first_timestamp=entry.first_timestamp if is_first else head.first_timestamp,
        next_offset=entry.next_offset,
        greatest_timestamp=greatest((head.greatest_timestamp, entry.greatest_timestamp)),
        epoch=entry.epoch,
        fragments=head.fragments + 1,
        chunks=head.chunks + entry.chunks,
        records=head.records + entry.records,
        messages=head.messages + entry.messages,
        data_bytes=head.data_bytes + entry.data_bytes,
        object_bytes=head.object_bytes + entry.object_bytes,
    )


def _event(head: Head, at: TimestampMs, detail: str) -> JournalEvent:
    return JournalEvent(head.revision, JournalKind.FRAGMENTS_REBUILT, at, None, None, detail=detail)


def _recorded_bytes(entry: FragmentEntry) -> int:
    """Return an upper bound of what the entry adds to a recorded change, which is compressed afterwards."""
    frames = 0 if entry.frames is None else len(entry.frames.to_bytes())
    return _RECORDED_ENTRY_BYTES + (len(entry.sparse.to_bytes()) + frames) * 4 // 3
