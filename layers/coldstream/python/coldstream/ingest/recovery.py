"""`coldstream recover`: bring what only the recovery log has into the archive, and delete what it need not have.

    read      all objects of the cluster, of all nodes
    stream    by stream: what the manifest does not cover is joined, staged, and announced like any segment
    delete    each object of which the manifest covers everything, or of which the rest is in quarantine, whole

The upload function judges what is announced as it judges an agent's: floors, deletions, bindings, contradiction. An
object with anything that is neither covered nor in quarantine stays, and the report says why. Killed at any point, it
has done nothing that the next run would not do, and may be run while agents are at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from coldstream.archive.coverage import covered_to, read_coverage
from coldstream.errors import (
    CorruptionError,
    ObjectNotFoundError,
    OtherClusterError,
    ReservedNameError,
    StreamDeletedError,
)
from coldstream.format.scanner import WholeChunk
from coldstream.format.segment import SEGMENT_HEADER, SEGMENT_HEADER_BYTES
from coldstream.ingest.announcer import AnnouncementReport, Announcer, SliceOutcome
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.span_log import LoggedEntry, SpanLog, Union, adjoining, join, read_chunks, read_log
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.store.object_values import DeleteFailure
from coldstream.store.reserved import StreamAction, check_not_reserved
from coldstream.store.second_look import look_twice

READS_AT_ONCE = 16
"""Runs of one stream that are read at a time."""


@dataclass(frozen=True, slots=True)
class KeptObject:
    """An object that stays in the log, and why."""

    key: str
    why: str


@dataclass(slots=True)
class RecoveredStream:
    """What a recovery did of one stream; offsets are pairs of first and next.

    `covered` were in the manifest already. `recovered` were announced and are archived now, or would be announced by a
    dry run. `quarantined` were announced, and the upload function refused them. `why` says why nothing was done.
    """

    stream: StreamId
    covered: list[tuple[int, int]] = field(default_factory=list)
    recovered: list[tuple[int, int]] = field(default_factory=list)
    recovered_bytes: int = 0
    quarantined: list[tuple[int, int]] = field(default_factory=list)
    why: str | None = None


@dataclass(slots=True)
class RecoveryReport:
    """What a recovery found and did. `deleted_bytes` are those of `deleted` objects, which a dry run would delete."""

    nodes: tuple[str, ...]
    objects: int
    object_bytes: int
    streams: list[RecoveredStream] = field(default_factory=list)
    deleted: int = 0
    deleted_bytes: int = 0
    kept: list[KeptObject] = field(default_factory=list)
    failures: list[DeleteFailure] = field(default_factory=list)
    is_damaged: bool = False


@dataclass(slots=True)
class LogRecovery:
    """A recovery by an announcer, which tells the archive, the cluster and whether it is a dry run.

    `timeout_s` is how long to wait for the upload function while it archives nothing. Memory: that of `read_log`, and
    twice UNION_BYTES. Disk: UNION_BYTES.
    """

    announcer: Announcer
    timeout_s: float
    _kept: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        on_object: Callable[[int], None] = lambda _: None,
        on_stream: Callable[[int], None] = lambda _: None,
    ) -> RecoveryReport:
        """Recover all streams, and return what was done.

        Cost: that of `read_log`; for each stream three GetItems and a Query for what lies side by side; a GET for each
        entry of what is not covered, and what announcing it costs. Raises UnavailableError.
        """
        log = read_log(self.announcer.objects, self.announcer.keys, on_object)
        report = RecoveryReport(tuple(sorted(log.nodes)), len(log.sizes), sum(log.sizes.values()))
        self._kept = {key: str(err) for key, err in log.damaged.items()}
        report.is_damaged = bool(log.damaged)
        with ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="recover") as readers:
            for stream in sorted(log.streams, key=lambda one: (one.vhost, one.name, one.incarnation)):
                report.streams.append(self._recover(stream, log.streams[stream], readers, report))
                on_stream(1)
        self._delete(log, report)
        report.kept = [KeptObject(key, why) for key, why in sorted(self._kept.items())]
        return report

    def _recover(
        self,
        stream: StreamId,
        entries: Sequence[LoggedEntry],
        readers: ThreadPoolExecutor,
        report: RecoveryReport,
    ) -> RecoveredStream:
        found = RecoveredStream(stream)
        try:
            check_not_reserved(self.announcer.table, stream.vhost, stream.name, StreamAction.ANNOUNCE)
            self.announcer.check_accepted(stream)
        except (OtherClusterError, ReservedNameError, StreamDeletedError) as err:
            found.why = str(err)
            self._keep(entries, str(err))
            return found
        for group in adjoining(entries):
            self._recover_group(group, found, readers, report)
        return found

    def _recover_group(
        self,
        group: Sequence[LoggedEntry],
        found: RecoveredStream,
        readers: ThreadPoolExecutor,
        report: RecoveryReport,
    ) -> None:
        """Recover entries that leave no hole between them."""
        first = group[0].entry.first_offset
        end = max(one.entry.next_offset for one in group)
        coverage = read_coverage(self.announcer.table, found.stream.incarnation, first, end)
        is_covered = coverage.is_removed(end) or coverage.holds(first, end)
        # Of what is covered, only the runs that hold an entry's last message are read: logs that hold the same chunk
        # are equal up to it.
        wanted = [one for one in group if not is_covered or _holds_last(one, coverage.entries)]
        runs = list(self._read(wanted, readers, report))
        if is_covered:
            found.covered.append((first, end))
            for one, run in runs:
                if not _agrees(run, coverage.entries):
                    self._announce(_union_of(one, run), found, is_contested=True)
            return
        unions = list(join(runs))
        for number, union in enumerate(unions):
            is_contested = any(union.first_offset < earlier.next_offset for earlier in unions[:number])
            self._announce(union, found, is_contested=is_contested)

    def _read(
        self, entries: Sequence[LoggedEntry], readers: ThreadPoolExecutor, report: RecoveryReport
    ) -> Iterator[tuple[LoggedEntry, Sequence[WholeChunk]]]:
        def read(one: LoggedEntry) -> Sequence[WholeChunk] | CorruptionError | None:
            try:
                return look_twice(lambda: read_chunks(self.announcer.objects, one))
            except ObjectNotFoundError:  # covered, and deleted by its agent since
                return None
            except CorruptionError as err:
                return err

        for one, run in zip(entries, readers.map(read, entries), strict=True):
            if isinstance(run, CorruptionError):
                if not self._is_covered(one):  # else the archive has what it was to keep
                    report.is_damaged = True
                    self._keep([one], str(run))
            elif run is not None:
                yield one, run

    def _announce(self, union: Union, found: RecoveredStream, *, is_contested: bool) -> None:
        """Stage and announce chunks, and wait until they are archived or in quarantine; else their objects stay."""
        offsets = union.first_offset, union.next_offset
        size_bytes = sum(map(len, union.chunks))
        if self.announcer.dry_run:
            found.recovered.append(offsets)
            found.recovered_bytes += size_bytes
            return
        outcome = self._deliver(union, is_contested=is_contested)
        if outcome is SliceOutcome.QUARANTINED:
            found.quarantined.append(offsets)
        elif outcome is SliceOutcome.ARCHIVED:
            found.recovered.append(offsets)
            found.recovered_bytes += size_bytes
        else:
            self._keep(union.entries, f"what became of offsets {offsets[0]} to {offsets[1] - 1} is not known")

    def _deliver(self, union: Union, *, is_contested: bool) -> SliceOutcome:
        announcer = self.announcer
        with ExitStack() as stack:
            path = Path(stack.enter_context(TemporaryDirectory(prefix="coldstream-"))) / "run.segment"
            with path.open("wb") as file:
                file.write(SEGMENT_HEADER)
                file.writelines(union.chunks)
                end = file.tell()
            slice_ = SegmentSlice(path, union.first_offset, union.next_offset, SEGMENT_HEADER_BYTES, end)
            rolled = announcer.stage(slice_, union.stream)
        announcement = announcer.put(rolled, is_contested=is_contested)
        waiting = AnnouncementReport(union.stream, pending=[announcement])
        announcer.wait([waiting], self.timeout_s, lambda _: None)
        # Looked at again: `wait` ends as well when nothing proves what became of it.
        return SliceOutcome.QUARANTINED if waiting.quarantined else announcer.outcome(announcement)

    def _delete(self, log: SpanLog, report: RecoveryReport) -> None:
        """Delete the objects of which everything is covered, by the manifest as it is now, or in quarantine."""
        aside: dict[StreamId, list[tuple[int, int]]] = {}
        for found in report.streams:
            aside[found.stream] = list(found.quarantined)
            if self.announcer.dry_run:
                aside[found.stream] += found.recovered
        for stream, entries in log.streams.items():
            for group in adjoining([one for one in entries if one.key not in self._kept]):
                self._keep_uncovered(stream, group, aside.get(stream, []))
        gone = [key for key in log.sizes if key not in self._kept]
        if not self.announcer.dry_run:
            answer = self.announcer.objects.delete_many(gone)
            report.failures += answer.failed
            gone = list(answer.deleted)
        report.deleted = len(gone)
        report.deleted_bytes = sum(log.sizes[key] for key in gone)

    def _keep_uncovered(self, stream: StreamId, group: Sequence[LoggedEntry], aside: Sequence[tuple[int, int]]) -> None:
        first = group[0].entry.first_offset
        end = max(one.entry.next_offset for one in group)
        if covered_to(self.announcer.table, stream.incarnation, first, end) >= end:
            return
        for one in group:
            entry = one.entry
            is_aside = any(start <= entry.first_offset and entry.next_offset <= stop for start, stop in aside)
            if not is_aside and not self._is_covered(one):
                self._keep(
                    [one], f"the manifest does not cover offsets {entry.first_offset} to {entry.next_offset - 1}"
                )

    def _is_covered(self, one: LoggedEntry) -> bool:
        entry = one.entry
        incarnation = entry.stream.incarnation
        return covered_to(self.announcer.table, incarnation, entry.first_offset, entry.next_offset) >= entry.next_offset

    def _keep(self, entries: Sequence[LoggedEntry], why: str) -> None:
        for one in entries:
            self._kept.setdefault(one.key, f"{one.entry.stream}: {why}")


def _holds_last(one: LoggedEntry, entries: Sequence[FragmentEntry]) -> bool:
    return any(
        entry.last_user_chunk is not None
        and one.entry.first_offset <= entry.last_user_chunk.chunk_id < one.entry.next_offset
        for entry in entries
    )


def _agrees(run: Sequence[WholeChunk], entries: Sequence[FragmentEntry]) -> bool:
    """Tell whether a run has the last message's chunk of each entry that ends in it, as the manifest has it."""
    headers = {int(chunk.header.chunk_id): chunk.header for chunk in run}
    first, end = run[0].header.chunk_id, run[-1].header.next_offset
    for entry in entries:
        last = entry.last_user_chunk
        if last is None or not first <= last.chunk_id < end:
            continue
        ours = headers.get(int(last.chunk_id))
        if ours is None or ours.timestamp != last.timestamp or ours.epoch > entry.epoch:
            return False
    return True


def _union_of(one: LoggedEntry, run: Sequence[WholeChunk]) -> Union:
    union = Union(one.entry.stream, one.entry.first_offset, one.entry.first_offset)
    union.add(one, run)
    return union
