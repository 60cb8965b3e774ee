"""The rebuild of one stream: records first, then the entries in the order of their offsets, many in one change.

Everything that the next run needs is in the table: the head says how far the entries are, and a cursor that this table
is being rebuilt. So a run that is killed anywhere is continued by the next, and ends in the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from coldstream.errors import InvalidInputError, LostRaceError, OutcomeUnknownError
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Erasure, Head, Hold, Loss, Missing, Quarantine, Tombstone
from coldstream.manifest.missing import is_known
from coldstream.manifest.rebuilt import MAX_RECORDS, MAX_TOMBSTONES, RebuiltEntry, plan_entries, plan_records
from coldstream.manifest.removal import tombstone_of
from coldstream.rebuild.choose import Chosen, choose
from coldstream.rebuild.entries import Unreadable
from coldstream.rebuild.epochs import of_one_history
from coldstream.rebuild.facts import Doubt, StreamFacts, StreamReport
from coldstream.rebuild.fragment import FoundFragment
from coldstream.rebuild.progress import Progress, cursor_of
from coldstream.rebuild.unread import without_older
from coldstream.store.ports import ManifestTable
from coldstream.units import Offset, TimestampMs, format_timestamp

MAX_TOLD = 1000
"""Objects that a report names, of each kind."""

ATTEMPTS = 5
"""Attempts at a change whose outcome is unknown."""

_BATCH = 100
"""Entries that are held until a change is full; one change takes fewer."""


@dataclass(slots=True)
class _Findings:
    """What a report counts, while it is counted."""

    written: int = 0
    superseded: int = 0
    doubts: int = 0
    unread: int = 0
    doubtful: list[Doubt] = field(default_factory=list)
    unreadable: list[Doubt] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)

    def doubt(self, one: FoundFragment, reason: str) -> None:
        self.doubts += 1
        if len(self.doubtful) < MAX_TOLD:
            self.doubtful.append(Doubt(one.entry.key, reason))

    def cannot_read(self, key: str, reason: str) -> None:
        if any(one.key == key for one in self.unreadable):
            return  # a run before this one had read so far ahead
        self.unread += 1
        if len(self.unreadable) < MAX_TOLD:
            self.unreadable.append(Doubt(key, reason))


class StreamRebuild:
    """Writes one stream into a table that has none of it, or continues to.

    `grace_ms` is the time from the beginning of the rebuild until superseded objects may be deleted. With `at`, the
    bucket counts as it was then. With `is_dry`, nothing is written.
    """

    def __init__(
        self,
        table: ManifestTable,
        facts: StreamFacts,
        *,
        now: Callable[[], TimestampMs],
        grace_ms: int,
        at: TimestampMs | None = None,
        is_dry: bool = False,
    ) -> None:
        self._table = table
        self._facts = facts
        self._now = now
        self._grace_ms = grace_ms
        self._at = at
        self._is_dry = is_dry
        self._head = facts.base
        self._generation = 0  # no object below it may be committed
        self._findings = _Findings()
        self._missing: tuple[Missing, ...] = ()
        self._progress = Progress(now(), at)

    @property
    def next_offset(self) -> Offset:
        """Where the entries go on: objects that begin below it were dealt with."""
        return self._head.next_offset or Offset(0) if self._head.first_offset is not None else Offset(0)

    def tell_gone(self, key: str) -> None:
        """Take down an object that was there at the time, and is not any more."""
        self._findings.cannot_read(key, "deleted since; an earlier version of it may still be there")

    def begin(self) -> bool:
        """Write the records, as far as they are not there; return False if the whole stream is there already.

        Raises InvalidInputError if the table has the stream, and it does not come from this very rebuild.
        """
        stream = self._facts.stream
        source = cursor_of(stream.incarnation)
        data = None if self._is_dry else self._table.cursor(source)
        head = None if self._is_dry else self._table.head(stream.incarnation)
        if data is not None:
            self._progress = Progress.from_bytes(data, source=source)
            self._findings.unread, self._findings.unreadable = self._progress.unread, [*self._progress.unreadable]
        if head is not None:
            self._check_continues(head, is_begun=data is not None)
            self._head = head
            if self._progress.revision is not None:
                return False
        elif not self._is_dry:
            self._table.put_cursor(source, self._progress.to_bytes())
        self._put_records()
        return True

    def take(
        self, found: Iterable[FoundFragment | Unreadable], *, should_stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Write the entries of what was found, in the order of the keys; return False if it was stopped before the end.

        Memory: a run of objects that overlap, and the entries of one change.
        """
        batch: list[RebuiltEntry] = []
        # Of the entries written before this run only the last epoch is known, and that is enough.
        trusted = without_older(self._taken(found), self._facts.erased, leave_out=self._may_be_erased)
        chosen = choose(trusted, at=self._at)
        for one in of_one_history(chosen, after=self._head.epoch, leave_out=self._leave_out):
            batch.append(self._rebuilt(one))
            if len(batch) == _BATCH:
                if should_stop():
                    return False
                del batch[: self._write(batch)]
        while batch:
            if should_stop():
                return False
            del batch[: self._write(batch)]
        return True

    def finish(self) -> StreamReport:
        """Write what shows only at the end, say that all is written, and return the report."""
        self._apply_end()
        self._progress = replace(self._progress, revision=self._head.revision)
        self._save()
        return replace(self.report(), is_done=True)

    def _save(self) -> None:
        found = self._findings
        self._progress = replace(self._progress, unread=found.unread, unreadable=tuple(found.unreadable))
        if not self._is_dry:
            self._table.put_cursor(cursor_of(self._facts.stream.incarnation), self._progress.to_bytes())

    def _apply_end(self) -> None:
        head = self._fenced()
        if head.first_offset is None:
            head = replace(head, epoch=self._facts.tail_epoch)
        if head != self._head:
            self._apply(plan_records(head, [], at=self._now()))

    def _fenced(self) -> Head:
        """Return the head, with the fence as it has to be by now."""
        return replace(self._head, generation=max(self._head.generation, self._generation))

    def report(self) -> StreamReport:
        """Return the report of what was done so far."""
        found, head = self._findings, self._head
        return StreamReport(
            self._facts.stream,
            self._facts.is_named,
            head.fragments,
            head.data_bytes,
            head.gaps,
            found.written,
            found.superseded,
            found.doubts,
            found.unread,
            tuple(found.doubtful),
            tuple(found.unreadable),
            tuple(found.stand_ins),
            self._facts.notes,
            self._at,
        )

    def _check_continues(self, head: Head, *, is_begun: bool) -> None:
        if not is_begun:
            problem = f"the table has {head.stream} already; rebuild into one that has nothing of it"
        elif self._progress.at != self._at:
            at = self._progress.at
            as_of = "the time of its rebuild" if at is None else format_timestamp(at)
            problem = f"{head.stream} is rebuilt there as of another time, {as_of}; take another table"
        elif self._progress.revision not in {None, head.revision}:
            problem = f"{head.stream} was rebuilt there, and has changed since"
        else:
            return
        raise InvalidInputError("table", problem)

    def _put_records(self) -> None:
        """Put what is no entry: first what protects, so that nothing is ever there without it."""
        facts, incarnation = self._facts, self._facts.stream.incarnation
        is_begun = self._head.revision > 0
        held = {hold.id for hold in self._table.holds(incarnation)} if is_begun else set()
        erased = {one.id for one in self._table.erasures(incarnation)} if is_begun else set()
        known: list[Missing] = list(self._table.missing(incarnation)) if is_begun else []
        copies = {_offsets(one): one.copies for one in known if isinstance(one, Quarantine)}
        records: list[Hold | Erasure | Loss | Quarantine | Tombstone] = []
        records += (hold for hold in facts.holds if hold.id not in held)
        records += (one for one in facts.erasures if one.id not in erased)
        for loss in facts.losses:
            if not is_known(loss, known):
                known.append(loss)
                records.append(loss)
        further: list[Quarantine] = []
        for one in facts.quarantines:
            if one.copies > copies.get(_offsets(one), 0):
                (records if one.copies == 1 else further).append(one)
                known = [other for other in known if not _is_same_quarantine(other, one)] + [one]
        # The first change of a stream is written even if it has no records: it has what the head says.
        for start in range(0, max(len(records), 1), MAX_RECORDS):
            some = records[start : start + MAX_RECORDS]
            if some or not is_begun:
                self._apply(plan_records(self._head, some, at=self._now()))
        for one in further:  # each replaces the copy before it, so no two of them go into one change
            self._apply(plan_records(self._head, [one], at=self._now()))
        self._missing = tuple(known)

    def _taken(self, found: Iterable[FoundFragment | Unreadable]) -> Iterator[FoundFragment | Unreadable]:
        """Yield what may be in the log: what is above the floor, and was there at the time; and what is unreadable."""
        floor = self._facts.base.floor
        removed: list[Tombstone] = []
        before: FoundFragment | None = None
        for one in found:
            if isinstance(one, Unreadable):
                self._findings.cannot_read(one.key, one.reason)
                yield one
                continue
            entry = one.entry
            if self._at is not None and one.last_modified > self._at and not _may_stand_in(one, self._at):
                continue
            if entry.next_offset <= floor:
                removed.append(self._tombstone(one))
                if len(removed) == MAX_RECORDS:
                    self._put_removed(removed)
                continue
            if entry.first_offset < floor:
                self._doubt(one, f"it reaches below the floor, {floor}")
                continue
            # Before any entry: once there is one, a run that continues does not come to these objects again.
            self._put_removed(removed)
            before = one.after(before)
            yield before
        self._put_removed(removed)

    def _put_removed(self, removed: list[Tombstone]) -> None:
        if removed:
            self._apply(plan_records(self._head, removed, at=self._now()))
            removed.clear()

    def _rebuilt(self, one: Chosen) -> RebuiltEntry:
        (taken,) = one.taken
        for left in one.doubtful:
            self._doubt(left, f"others hold its offsets, such as {taken.entry.key}, and not the same bytes")
        if self._at is not None and taken.last_modified > self._at and len(self._findings.stand_ins) < MAX_TOLD:
            self._findings.stand_ins.append(taken.entry.key)
        if taken.entry.erased:
            # As the erasure did: the object before it must not be committed again, whether or not it is still there.
            self._generation = max(self._generation, taken.entry.generation)
        return RebuiltEntry(taken.entry, tuple(map(self._tombstone, one.superseded)))

    def _leave_out(self, one: FoundFragment) -> None:
        self._doubt(one, f"its epoch, {one.entry.epoch}, contradicts the objects beside it: another history")

    def _may_be_erased(self, one: FoundFragment, by: Unreadable) -> None:
        self._doubt(one, f"{by.key} was written after it, cannot be read, and may be what an erasure left of it")

    def _doubt(self, one: FoundFragment, reason: str) -> None:
        """Take down an object without an entry, and keep whoever may still be about to commit it from doing so."""
        self._findings.doubt(one, reason)
        self._generation = max(self._generation, one.entry.generation + 1)

    def _tombstone(self, one: FoundFragment) -> Tombstone:
        entry = one.entry
        self._findings.superseded += 1
        due_at = TimestampMs(self._progress.began + self._grace_ms)
        # It may be what an erasure replaced, or what was replaced before it.
        is_erased = any(
            entry.first_offset < erasure.next_offset and erasure.first_offset < entry.next_offset
            for erasure in self._facts.erasures
        )
        return tombstone_of(entry, due_at, all_versions=is_erased)

    def _write(self, batch: list[RebuiltEntry]) -> int:
        """Write the first entries of a batch; return how many."""
        first, *_ = batch
        while len(first.tombstones) > MAX_TOMBSTONES:
            # Before the entry: until that is there, a run that continues comes to the same objects again.
            some, rest = first.tombstones[:MAX_RECORDS], first.tombstones[MAX_RECORDS:]
            self._apply(plan_records(self._head, some, at=self._now()))
            first = batch[0] = replace(first, tombstones=rest)
        change, count = plan_entries(self._fenced(), batch, self._missing, at=self._now())
        self._apply(change)
        self._findings.written += count
        return count

    def _apply(self, change: Change) -> None:
        """Write a change. Nobody else writes this stream: a head that moved is this change, or somebody's mistake."""
        if self._findings.unread != self._progress.unread:
            self._save()  # before it: a run that continues after it does not come to these objects again
        for attempt in range(ATTEMPTS):
            if self._is_dry:
                break
            try:
                self._table.apply(change)
                break
            except (OutcomeUnknownError, LostRaceError):
                if self._table.head(change.head.stream.incarnation) == change.head:
                    break
                if attempt == ATTEMPTS - 1:
                    raise
        self._head = change.head


def _may_stand_in(one: FoundFragment, at: TimestampMs) -> bool:
    """Tell whether an object that was written later may hold what was archived at a time: it was made from others."""
    return one.is_remade and one.entry.greatest_timestamp <= at


def _offsets(one: Missing) -> tuple[Offset, Offset]:
    return one.first_offset, one.next_offset


def _is_same_quarantine(one: Missing, other: Quarantine) -> bool:
    return isinstance(one, Quarantine) and _offsets(one) == _offsets(other)
