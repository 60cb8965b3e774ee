"""The history of a stream: the journal's events, and the state that it gives at any time.

The journal is the manifest's source: each event's item holds its change (`manifest.recorded`), and the changes, applied
one after the other, give the table (`manifest.state`). What a stream was at a time needs less than that. A change has
the whole head after it; gaps and what is known to be missing follow from their own writes. So memory does not grow with
the entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from coldstream.manifest.change import (
    Change,
    DeleteGap,
    DeleteLoss,
    DeleteQuarantine,
    PutGap,
    PutLoss,
    PutQuarantine,
    ReplaceGap,
    Write,
)
from coldstream.manifest.entry import Gap, Head, JournalEvent, Loss, Missing, Quarantine
from coldstream.manifest.stream import Incarnation
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset, TimestampMs

CLOCK_SLACK_MS = 15 * 60 * 1000
"""How far the clocks of two writers may differ: so much earlier a search for a time begins to read."""


@dataclass(frozen=True, slots=True)
class PastState:
    """A stream as it was after `event`: its head, its gaps, and what was known to be missing."""

    event: JournalEvent
    head: Head
    gaps: tuple[Gap, ...]
    missing: tuple[Missing, ...]


def recent_events(
    table: ManifestReads,
    incarnation: Incarnation,
    *,
    since: TimestampMs | None = None,
    until: TimestampMs | None = None,
    limit: int,
) -> tuple[JournalEvent, ...]:
    """Return the last `limit` events of a stream, oldest first, from `since` on, and before `until`.

    Cost: one GetItem, a Query a page of events, and with a bound in time about one more for each power of two of the
    revision: the events before it are not read. Memory: `limit` events.
    """
    head = table.head(incarnation)
    if head is None:
        return ()
    if since is not None:
        first = _revision_before(table, incarnation, head.revision, TimestampMs(since - CLOCK_SLACK_MS))
    else:
        first = 0 if until is not None else max(0, head.revision - limit)
    found: deque[JournalEvent] = deque(maxlen=limit)
    for event in table.journal(incarnation, first):
        if until is not None and event.at >= until + CLOCK_SLACK_MS:
            break
        if (since is None or event.at >= since) and (until is None or event.at < until):
            found.append(event)
    if len(found) < limit and first > 0 and since is None:
        # An earlier release has revisions without an event: read all that there are.
        found = deque(table.journal(incarnation), maxlen=limit)
    return tuple(found)


def state_at(table: ManifestReads, incarnation: Incarnation, at: TimestampMs) -> PastState | None:
    """Return a stream as it was at a time; None if it had no manifest yet.

    Cost: one GetItem, and one Query a page of events up to then. Memory: gaps, losses and quarantines. Raises
    NotRecordedError if an earlier release wrote a change up to then: its journal does not say what.
    """
    return fold(table.recorded_changes(incarnation), at)


def fold(recorded: Iterable[tuple[JournalEvent, Change]], at: TimestampMs) -> PastState | None:
    """Return what changes, in order from the first on, leave at a time. Stops at the first one that is later."""
    last: tuple[JournalEvent, Head] | None = None
    beside = _Beside()
    for event, change in recorded:
        if event.at > at:
            break
        last = event, change.head
        for write in change.writes:
            beside.take(write)
    if last is None:
        return None
    gaps = tuple(beside.gaps[first] for first in sorted(beside.gaps))
    return PastState(*last, gaps, tuple(beside.missing.values()))


@dataclass(slots=True)
class _Beside:
    """What lies beside the entries: gaps by first offset, and what is known to be missing."""

    gaps: dict[Offset, Gap] = field(default_factory=dict)
    missing: dict[tuple[type[Missing], Offset, Offset], Missing] = field(default_factory=dict)

    def take(self, write: Write) -> None:
        match write:
            case PutGap(gap) | ReplaceGap(_, gap):
                self.gaps[gap.first_offset] = gap
            case DeleteGap(gap):
                del self.gaps[gap.first_offset]
            case PutLoss(one) | PutQuarantine(one):
                self.missing[_key(one)] = one
            case DeleteLoss(one) | DeleteQuarantine(one):
                del self.missing[_key(one)]


def _revision_before(table: ManifestReads, incarnation: Incarnation, last: int, at: TimestampMs) -> int:
    """Return a revision all of whose earlier events, and its own, are older than `at`."""
    first = 0
    while last - first > 1:
        middle = (first + last) // 2
        event = next(iter(table.journal(incarnation, middle, page_items=1)), None)
        if event is None or event.at >= at:
            last = middle
        else:
            first = middle
    return first


def _key(one: Loss | Quarantine) -> tuple[type[Missing], Offset, Offset]:
    return type(one), one.first_offset, one.next_offset
