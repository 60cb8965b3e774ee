"""An erasure from its beginning to its end, or for as long as it may run.

    begin      the selection is pinned to what is archived; holds, other copies and archived classes are checked; the
               erasure becomes an item of the manifest
    run        fragment by fragment: rewrite, put, read back, commit; the item says how far that came
    end        the item says that it is done; the sweep deletes the old objects when they are due

A run that was killed leaves the item, and perhaps one new object that nothing names. Any later run goes on from there.
Two runs at once do the work twice, and the log is right all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from coldstream.erase.copies import FoundCopies, find_copies
from coldstream.erase.discard import discard_copies, discard_spans
from coldstream.erase.replacement import commit_replacement, replacement_of
from coldstream.erase.report import ErasureReport
from coldstream.erase.rewrite import Rewrite, rewrite_fragment
from coldstream.erase.scope import Scope, read_scope
from coldstream.erase.selection import Selection
from coldstream.erase.versions import take_all_versions, take_found_versions, take_swept_versions
from coldstream.errors import (
    OtherCopiesError,
    StoppedError,
    StreamNotFoundError,
)
from coldstream.lifecycle.holds import read_held_stream
from coldstream.lifecycle.markers import note_erasure
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.entry import Erasure, ErasureState, FragmentEntry
from coldstream.manifest.erasing import plan_erasure_begin, plan_erasure_done, plan_erasure_progress
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset

ID_BYTES = 6

SAVE_EVERY = 100
"""Fragments without anything to erase after which the manifest learns how far a run is."""


@dataclass(frozen=True, slots=True)
class Eraser:
    """Erases messages of streams of one archive.

    `grace_ms` is the time after which the sweep may delete the objects with the old bytes, None for that of all other
    removals. If it is shorter, readers may fail that were given a URL before. `on_bytes` is told the size of the chunks
    of each fragment that is done with. `rewrite` returns the new object of the fragment that comes next, which others
    may have written ahead; by default it is written here (`rewrite_fragment`).
    """

    stores: LifecycleStores
    grace_ms: int | None = None
    spool_dir: Path | None = None
    should_stop: Callable[[], bool] = lambda: False
    on_bytes: Callable[[int], None] = lambda _: None
    rewrite: Callable[[StreamId, FragmentEntry, Selection], Rewrite | None] | None = None

    def begin(
        self,
        stream: StreamId,
        selection: Selection,
        *,
        reason: str,
        by: str,
        with_copies: bool = False,
        erasure_id: str | None = None,
    ) -> tuple[Erasure, Scope, FoundCopies]:
        """Check everything, and write the erasure into the manifest; `with_copies` deletes other copies of the bytes.

        Whoever may die in this call gives the erasure an id of its own, by which it finds it again: with an id that is
        there already, nothing is begun.

        Returns the erasure, what it is about, and the copies that were found, of which those that await deletion are
        left. Nothing is written before all checks have passed. Cost: those of `read_scope`, `find_copies`,
        `take_found_versions`, `take_all_versions` and `take_swept_versions`, a transaction and a PUT. Raises as
        `read_scope`, and OtherCopiesError.
        """
        finish(self.stores.table, stream.incarnation, self.stores.now, self.stores.grace_ms)
        scope = read_scope(self.stores, stream.incarnation, selection)
        head = self.stores.table.head(stream.incarnation)
        assert head is not None, "a head that was read once stays"
        # From where it was asked for: what was removed below the log may be in the bucket still.
        found = find_copies(self.stores, stream, selection.first_offset, scope.next_offset)
        if found.copies:
            if with_copies:
                discard_copies(self.stores, stream, found, by=by)
                # Whatever is reported as deleted was looked for again.
                self._check_copies(find_copies(self.stores, stream, selection.first_offset, scope.next_offset))
            else:
                self._check_copies(found)
        pinned = scope.selection
        assert pinned.next_offset is not None
        erasure = Erasure(
            id=erasure_id or secrets.token_hex(ID_BYTES),
            first_offset=selection.first_offset,
            next_offset=pinned.next_offset,
            where=pinned.to_text(),
            reason=reason,
            by=by,
            at=self.stores.now(),
            messages=0,
            digest="",
            state=ErasureState.RUNNING,
            reached=pinned.first_offset,
        )
        # Before the erasure is there: nobody who goes on with it knows what was found.
        take_found_versions(self.stores, stream.incarnation, erasure, found.awaiting)
        self._write(stream.incarnation, None, erasure)
        # In this order: a sweep that knew nothing of the erasure either finds its tombstones marked, or has been noted.
        take_all_versions(self.stores, stream.incarnation, erasure)
        take_swept_versions(self.stores, head, erasure)
        return erasure, scope, found

    def run(self, stream: StreamId, erasure: Erasure, selection: Selection) -> ErasureReport:
        """Go on with an erasure, whose selection has its function loaded if it has one.

        It ends early, without an error, once `should_stop` is true. Cost: that of `take_all_versions`, and a
        transaction and a PUT on a bucket with versions; of each fragment a Query, a GET each 4 MiB of chunks; if
        anything in it is erased, the same again to read it back, a HEAD, a PUT, a transaction, a PUT of the note and a
        Query; at the end that of `discard_spans`. Raises HeldError and StreamDeletedError if that is new,
        CorruptionError for a damaged fragment, OtherCopiesError at the end while a recovery log has a copy, and as
        `Selection.takes`; what was done by then is done, and the next run goes on.
        """
        report = ErasureReport(stream, erasure, is_done=erasure.state is ErasureState.DONE)
        position, unsaved = erasure.reached, 0
        while not report.is_done:
            entry = self._next_entry(stream.incarnation, position, erasure.next_offset)
            if entry is None:
                # What others replaced or removed beside this erasure before its offsets were erased. Of what went by a
                # change that shows by half, this one is later: from here on the journal has it.
                if self.stores.bucket.versioned is not False:
                    report = self._save(report, erasure.next_offset)
                take_all_versions(self.stores, stream.incarnation, erasure)
                discard_spans(self.stores, stream, erasure.first_offset, erasure.next_offset)
                return self._save(report, erasure.next_offset, ErasureState.DONE)
            if self.should_stop() or unsaved == SAVE_EVERY:
                report, unsaved = self._save(report, position), 0
                if self.should_stop():
                    break
            try:
                moved = self._erase(report, entry, selection)
            except StoppedError:
                return self._save(report, position)
            if moved is None:
                # Others were first: another run of this erasure may be further by now.
                current = self._reread(stream.incarnation, report.erasure)
                report = replace(report, erasure=current, is_done=current.state is ErasureState.DONE)
                position, unsaved = max(position, current.reached), 0
                continue
            unsaved = unsaved + 1 if moved.erasure is report.erasure else 0
            report, position = moved, entry.next_offset
            self.on_bytes(entry.data_bytes)
        return report

    def _save(
        self, report: ErasureReport, reached: Offset, state: ErasureState = ErasureState.RUNNING
    ) -> ErasureReport:
        """Write how far an erasure is, past fragments in which nothing was to erase."""
        after = replace(report.erasure, reached=reached, state=state)
        if after != report.erasure:
            self._write(report.stream.incarnation, report.erasure, after)
        return replace(report, erasure=after, is_done=state is ErasureState.DONE)

    def _erase(self, report: ErasureReport, entry: FragmentEntry, selection: Selection) -> ErasureReport | None:
        """Rewrite and commit one fragment; return the report with it, None if its entry changed meanwhile."""
        stores, stream = self.stores, report.stream
        rewrite = self._rewrite_here if self.rewrite is None else self.rewrite
        found = rewrite(stream, entry, selection)
        if found is None:
            return None
        report = replace(
            report,
            fragments_read=report.fragments_read + 1,
            read_bytes=report.read_bytes + entry.object_bytes,
            unreadable=report.unreadable + found.unreadable,
            unknown_filter_values=report.unknown_filter_values + found.unknown_filter_values,
        )
        if found.after is None:
            return report
        one = replacement_of(report.erasure, found.after, found)
        due_at = commit_replacement(stores, stream.incarnation, one, grace_ms=self.grace_ms)
        if due_at is None:
            return None
        # After the transaction, and before the old object goes: the bucket alone then says what is gone on purpose.
        note_erasure(stores, stream.incarnation, one.erasure_after)
        return replace(
            report,
            erasure=one.erasure_after,
            fragments=report.fragments + 1,
            messages=report.messages + found.messages,
            written_bytes=report.written_bytes + found.after.object_bytes,
            due_at=due_at,
        )

    def _rewrite_here(self, stream: StreamId, entry: FragmentEntry, selection: Selection) -> Rewrite | None:
        return rewrite_fragment(
            self.stores,
            stream.incarnation,
            entry,
            selection,
            spool_dir=self.spool_dir,
            should_stop=self.should_stop,
        )

    def _next_entry(self, incarnation: Incarnation, position: Offset, next_offset: Offset) -> FragmentEntry | None:
        """Return the entry that holds an offset, or the first after it, unless that is past the end."""
        # While a compaction is unfinished, two entries hold the same offsets, and one is about to go.
        finish(self.stores.table, incarnation, self.stores.now, self.stores.grace_ms)
        entry = next(iter(self.stores.table.log_from_offset(incarnation, position, 1).entries), None)
        return None if entry is None or entry.first_offset >= next_offset or position >= next_offset else entry

    def _check_copies(self, found: FoundCopies) -> None:
        if found.copies:
            raise OtherCopiesError([f"{one.kind} {one.key}" for one in found.copies])

    def _reread(self, incarnation: Incarnation, erasure: Erasure) -> Erasure:
        return next((one for one in self.stores.table.erasures(incarnation) if one.id == erasure.id), erasure)

    def _write(self, incarnation: Incarnation, before: Erasure | None, after: Erasure) -> None:
        """Write the beginning, the progress or the end of an erasure, and its note."""

        def attempt() -> None:
            current = self._reread(incarnation, before or after)
            if after in self.stores.table.erasures(incarnation) or current.state is ErasureState.DONE:
                return  # by an earlier attempt, whose answer never came, or by another run
            if before is None and current is not after:
                return  # another process has begun it, under the same id
            stream = read_held_stream(self.stores.table, incarnation)
            if stream is None:
                raise StreamNotFoundError(f"no incarnation {incarnation!r}")
            at = self.stores.now()
            if before is None:
                change = plan_erasure_begin(stream.head, after, stream.holds)
            elif after.state is ErasureState.DONE:
                change = plan_erasure_done(stream.head, before, after, at)
            else:
                change = plan_erasure_progress(stream.head, before, after, at)
            self.stores.table.apply(change)

        retry_lost_races(attempt)
        # After the transaction: what removes is told to the bucket once it is true.
        note_erasure(self.stores, incarnation, after)


def unfinished_erasures(stores: LifecycleStores, incarnation: Incarnation) -> tuple[Erasure, ...]:
    """Return the erasures of a stream that are running, or were interrupted. Cost: one Query."""
    return tuple(one for one in stores.table.erasures(incarnation) if one.state is ErasureState.RUNNING)
