"""The kind `erase`: messages of one stream lose their bytes; their offsets stay.

The id of the erasure follows from the job and its run, and the manifest has the erasure as an item of that id from its
beginning on. So whoever takes the job over finds what was begun, and begins nothing twice. How far it is says that
item, too, in the transaction that commits each fragment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

from coldstream.erase.conditions import within
from coldstream.erase.report import ErasureReport
from coldstream.erase.rewrite import Rewrite, rewrite_fragment
from coldstream.erase.run import ID_BYTES, Eraser
from coldstream.erase.scope import iter_settled
from coldstream.erase.selection import Selection
from coldstream.errors import OtherCopiesError
from coldstream.jobs.job import Job
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.spec_fields import offset_range
from coldstream.jobs.specs import EraseSpec
from coldstream.lifecycle.markers import write_missing_erasures
from coldstream.manifest.entry import Erasure, ErasureState, FragmentEntry
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.reserved import StreamAction, check_not_reserved
from coldstream.store.streams import select_streams
from coldstream.units import format_timestamp
from coldstream.upkeep.archive import UpkeepArchive

MAX_BY = 255


def erasure_id_of(job: Job) -> str:
    """Return the id of the erasure of a job's present run."""
    return sha256(f"{job.id} {job.run_began_at}".encode()).hexdigest()[: 2 * ID_BYTES]


def run_erase(run: JobRun, archive: UpkeepArchive) -> RunEnd:
    """Erase what a job selects. Raises HeldError, OtherCopiesError, NotRestoredError, StreamDeletedError and the like.

    Gaps among the offsets, and messages that stay because a condition could not be tried on them, are told as skipped.
    """
    spec = run.spec
    assert isinstance(spec, EraseSpec)
    return _JobErasure(run, archive, spec).go()


@dataclass(frozen=True, slots=True)
class _JobErasure:
    """One attempt of an erasure."""

    run: JobRun
    archive: UpkeepArchive
    spec: EraseSpec

    def go(self) -> RunEnd:
        """Begin the erasure, or find it, and go on with it."""
        stores = self.archive.stores
        stream = self._stream()
        erasure = self._find(stream)
        if erasure is None:
            if self.run.should_stop():
                return Interrupted()
            erasure = self._begin(stream)
        else:
            # A run that died after its last transaction has not told the bucket of it.
            write_missing_erasures(stores, stream.incarnation)
        self._tell_reached(stream, erasure)
        if erasure.state is ErasureState.DONE:
            return self._finished(erasure, None)
        selection = Selection.from_text(erasure.where, source=f"erasure {erasure.id}")
        report = replace(self._eraser(), on_bytes=self._count).run(stream, erasure, selection)
        self._tell_messages(report.erasure)
        if not report.is_done:
            return Interrupted()
        return self._finished(report.erasure, report)

    def _stream(self) -> StreamId:
        """Return the incarnation that the run is about: chosen once, before anything is begun."""
        spec, table = self.spec, self.archive.stores.table
        known = self.run.cursor.get("incarnation")
        if known is None:
            check_not_reserved(table, spec.vhost, spec.stream, StreamAction.ERASE, incarnation=spec.incarnation)
            (found,) = select_streams(table, spec.vhost, [spec.stream], incarnation=spec.incarnation)
            self.run.advance(cursor={"incarnation": found.incarnation}, unit="bytes")
            # It must be known before the erasure is: the next attempt looks for it in this incarnation.
            self.run.checkpoint()
            return found
        return StreamId(spec.vhost, spec.stream, Incarnation(known))

    def _find(self, stream: StreamId) -> Erasure | None:
        erasures = self.archive.stores.table.erasures(stream.incarnation)
        return next((one for one in erasures if one.id == erasure_id_of(self.run.job)), None)

    def _begin(self, stream: StreamId) -> Erasure:
        job, spec = self.run.job, self.spec
        self.run.check_lease()
        try:
            erasure, scope, copies = self._eraser().begin(
                stream,
                self._selection(stream),
                reason=spec.reason,
                by=f"{job.by or 'somebody'} by job {job.id}"[:MAX_BY],
                with_copies=spec.with_other_copies,
                erasure_id=erasure_id_of(job),
            )
        except OtherCopiesError as err:
            if not spec.with_other_copies:
                err.add_note(
                    "with_other_copies deletes first what is archived as well, but no live write-ahead log; staged"
                    " segments go by themselves"
                )
            raise
        if scope.gaps:
            what = f"{stream}: {scope.gaps} gaps in offsets {erasure.first_offset} to {erasure.next_offset - 1}"
            self.run.skip(what, scope.gaps, "what is not archived there cannot be erased, if it ever comes")
        if copies.copies:
            self.run.say(f"{len(copies.copies)} other copies were deleted")
        for one in copies.awaiting:
            self.run.say(f"another copy goes with the first sweep after {format_timestamp(one.due_at)}: {one.key}")
        return self._find(stream) or erasure

    def _selection(self, stream: StreamId) -> Selection:
        spec = self.spec
        conditions = None if spec.selection is None else Selection.from_text(spec.selection, source="selection")
        if spec.offsets is None:
            assert conditions is not None, "an erasure that selects nothing is refused when it is created"
            return conditions
        return within(self.archive.stores.table, stream, conditions, *offset_range(spec.offsets))

    def _eraser(self) -> Eraser:
        archive = self.archive
        return Eraser(
            archive.stores, spool_dir=archive.spool_dir, should_stop=self.run.should_stop, rewrite=self._rewrite
        )

    def _rewrite(self, stream: StreamId, entry: FragmentEntry, selection: Selection) -> Rewrite | None:
        """Rewrite a fragment, and tell of the messages in it that stay before the manifest says that it is done."""
        found = rewrite_fragment(
            self.archive.stores,
            stream.incarnation,
            entry,
            selection,
            spool_dir=self.archive.spool_dir,
            should_stop=self.run.should_stop,
        )
        if found is not None and (found.unreadable or found.unknown_filter_values):
            where = f"{stream}, offsets {entry.first_offset} to {entry.next_offset - 1}"
            if found.unreadable:
                why = "their AMQP cannot be read, so nobody knows whether they are meant"
                self.run.skip(f"{where}: {found.unreadable} messages", found.unreadable, why)
            if found.unknown_filter_values:
                count = found.unknown_filter_values
                why = "they do not say their filter value themselves, and their chunk has that of the condition"
                self.run.skip(f"{where}: {count} messages", count, why)
            self.run.checkpoint()
        return found

    def _tell_reached(self, stream: StreamId, erasure: Erasure) -> None:
        """Tell how far the erasure is, in bytes of chunks. Cost: a GetItem, and a Query every 1,000 fragments."""
        done = total = 0
        head = self.archive.stores.table.head(stream.incarnation)
        entries = () if head is None else iter_settled(self.archive.stores.table, head, erasure.first_offset)
        for entry in entries:
            if entry.first_offset >= erasure.next_offset:
                break
            total += entry.data_bytes
            done += entry.data_bytes if entry.next_offset <= erasure.reached else 0
        self.run.advance(done=done, total=total, unit="bytes")
        self._tell_messages(erasure)

    def _tell_messages(self, erasure: Erasure) -> None:
        self.run.advance(messages=erasure.messages - self.run.progress.messages)

    def _count(self, data_bytes: int) -> None:
        progress = self.run.progress
        done = progress.done + data_bytes
        self.run.advance(done=min(done, progress.total or done), bytes_=data_bytes)

    def _finished(self, erasure: Erasure, report: ErasureReport | None) -> Finished:
        total = self.run.progress.total
        self.run.advance(done=self.run.progress.done if total is None else total)
        due_at = None if report is None else report.due_at
        sweep = "" if due_at is None else f"; the old objects go with the first sweep after {format_timestamp(due_at)}"
        return Finished(f"erasure {erasure.id}: {erasure.messages} messages erased{sweep}")
