"""The upload of one announced segment: verify, cut, write, commit, and only then delete the staged copy.

An upload that stops half-way can be repeated, and ends in the same manifest and the same objects. Offsets that the
manifest covers are skipped, objects that are in the bucket are recognised by their checksum, and the rest is written.
Before anything is skipped, the copy is compared with what is archived (`archive.contradiction`): of two histories of
one stream the archive keeps the first, and no chunk of the other.

What was removed from the archive stays removed: offsets below the floor are skipped, and of a deleted stream nothing is
archived. Objects that an upload wrote in vain, because of that or because another upload was first, get a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from coldstream.archive.cluster_binding import claim
from coldstream.archive.contradiction import check_history
from coldstream.archive.coverage import Coverage, read_coverage
from coldstream.archive.cutter import SegmentCutter
from coldstream.archive.draft import CutFragment
from coldstream.archive.fragment_writer import FragmentWriter
from coldstream.archive.quarantine import quarantine, read_quarantine
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.staged_segment import StagedSegment
from coldstream.errors import (
    BelowFloorError,
    ColdstreamError,
    ContradictionError,
    CorruptionError,
    InvalidEventError,
    LostRaceError,
    ObjectNotFoundError,
    OverlapError,
    ReplacedError,
    StaleGenerationError,
    StreamDeletedError,
)
from coldstream.flow.window import Window
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms

PUTS_AT_ONCE = 4
"""Fragments that are written while the next one is cut. Each holds its size in spool space."""

MAX_PLANS = 8
"""Plans of one upload, each on what the manifest holds by then, before the event goes back to its queue."""


@dataclass(frozen=True, slots=True)
class UploadResult:
    """What became of a segment. If it could not be archived, `quarantined` is its key there and `reason` says why.

    `is_stale` says that the announced copy was dealt with before: another copy is staged now, and has its own event.
    `removed` says that nothing of it was archived, because all of its offsets had been removed from the archive.
    """

    fragments_committed: int = 0
    fragments_present: int = 0
    bytes_committed: int = 0
    quarantined: str | None = None
    reason: str | None = None
    is_stale: bool = False
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Uploader:
    """Archives announced segments into one bucket and one table.

    A fragment ends after the chunk that takes its data past `fragment_bytes`. Up to five fragments at a time wait in
    `spool_dir`, by default the system's temporary directory, and six ranges of the staged copy (`staged_segment`).
    With a `zstd_level` new fragments are of encoding `zstd-seekable`; where they are cut does not depend on that.
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    fragment_bytes: int
    spool_dir: Path | None = None
    zstd_level: int | None = None
    now: Callable[[], TimestampMs] = now_ms

    def upload(self, segment: SegmentRolled) -> UploadResult:
        """Archive a segment and delete its staged copy. Safe to repeat, and to run concurrently with other uploads.

        Only the copy that was announced is judged. A copy that fails verification, or belongs to another history than
        the archive, goes to quarantine if a second read finds that as well; that is no error.

        Cost, besides reading the copy, a bad one twice: a PUT and two DynamoDB requests a fragment. If all of it is
        archived already, a HEAD replaces reading it. Raises InvalidEventError if the event contradicts the
        configuration, OtherClusterError if the stream is bound to another cluster than the announcing one, and
        ObjectNotFoundError if the staged copy is missing and the manifest does not cover it. Nothing is lost by trying
        again.
        """
        if segment.bucket != self.objects.bucket:
            raise InvalidEventError(
                "staged.bucket", f"is {segment.bucket!r}; this archive's is {self.objects.bucket!r}"
            )
        keys = replace(self.keys, cluster=segment.cluster)
        staged_key = keys.staged(segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if segment.staged_key != staged_key:
            # The object at any other key may be the only copy of another segment, which this event must not delete.
            raise InvalidEventError("staged.key", f"is {segment.staged_key!r}; this segment's is {staged_key!r}")
        # Before anything is written: a cluster must not add a single entry to another cluster's stream.
        claim(self.table, self.control, segment.stream, segment.cluster)
        writer = FragmentWriter(self.table, self.objects, self.keys, segment.stream, self.now)
        for _ in range(MAX_PLANS):
            try:
                return self._upload(segment, writer)
            except (OverlapError, StreamDeletedError, BelowFloorError, StaleGenerationError) as err:
                # Another upload committed some of it after this one planned, or the stream was deleted, truncated or
                # fenced. Plan again, so that the copy is first compared with what is archived by now, and fragments
                # get keys that may still be committed.
                changed = err
            except ObjectNotFoundError as err:
                if err.key != segment.staged_key:
                    raise
                result = self._without_copy(segment)
                writer.discard_orphans()
                return result
            except ReplacedError as err:
                # Another copy is at the key, and has an event of its own: this event has nothing left to judge.
                if err.key != segment.staged_key:
                    raise
                return UploadResult(is_stale=True)
        raise LostRaceError(f"others kept changing what is archived of {segment}; it will be tried again") from changed

    @property
    def control(self) -> ControlObjects:
        """The control objects of this archive."""
        return ControlObjects(self.objects, self.keys)

    def _upload(self, segment: SegmentRolled, writer: FragmentWriter, *, doubted: str | None = None) -> UploadResult:
        """Archive what the manifest does not hold. `doubted` is the ETag of a copy that a read before found bad.

        Raises OverlapError if another upload commits some of it first; StreamDeletedError, BelowFloorError or
        StaleGenerationError if the archive loses some of it, or the right to its keys, meanwhile.
        """
        coverage = read_coverage(self.table, segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if coverage.is_removed(segment.next_offset):
            return self._drop(segment, writer)
        if coverage.head is None:
            # Before the first change of the stream: nothing else in the bucket tells the names of an incarnation.
            self.control.write_stream(segment.stream)
        if etag := self._archived_bit_for_bit(segment, coverage):
            writer.discard_orphans()
            self._delete(segment, etag)
            return UploadResult(fragments_present=len(coverage.entries))
        staged = StagedSegment(self.objects, segment.staged_key, segment.etag, self.spool_dir)
        result, reason = None, ""
        try:
            with staged:
                # The whole copy is compared before its first chunk is archived: an archive must never hold parts of two
                # histories.
                check_history(self.objects, segment, staged, coverage)
                result = self._archive(segment, staged, coverage, writer)
        except (CorruptionError, ContradictionError) as err:
            if isinstance(err, CorruptionError) and err.source != segment.staged_key:
                raise  # the archive is corrupt; this copy may be the only sound one, and stays staged
            reason = str(err)
        if result is None and staged.etag != doubted:
            # S3 sends no checksum with a range, so wrong bytes may be those of one read, and the copy be sound.
            return self._upload(segment, writer, doubted=staged.etag)
        if result is None:
            key = quarantine(
                self.table, self.objects, self.keys, segment, etag=staged.etag, reason=reason, now=self.now
            )
            result = UploadResult(quarantined=key, reason=reason)
        # Before the copy goes: until then this event comes again if the process dies here.
        writer.discard_orphans()
        # Last, and only the copy that was read: until the manifest covers it, or quarantine has it, it is the only one.
        self._delete(segment, staged.etag)
        return result

    def _drop(self, segment: SegmentRolled, writer: FragmentWriter) -> UploadResult:
        """Delete a staged copy of what was removed from the archive, and what was written of it."""
        writer.discard_orphans()
        staged = self.objects.info(segment.staged_key)
        if staged is not None and segment.etag not in {None, staged.etag}:
            return UploadResult(is_stale=True)
        if staged is not None:
            self._delete(segment, staged.etag)
        return UploadResult(removed=True)

    def _archived_bit_for_bit(self, segment: SegmentRolled, coverage: Coverage) -> str | None:
        """Return the staged copy's ETag if its checksum is that of what is archived, so that it need not be read."""
        crc32 = coverage.segment_crc32() if coverage.holds_just(segment.first_offset, segment.next_offset) else None
        if crc32 is None:
            return None
        staged = self.objects.info(segment.staged_key)
        if staged is None:
            raise ObjectNotFoundError(segment.staged_key)
        if segment.etag not in {None, staged.etag}:
            raise ReplacedError("HEAD", segment.staged_key)
        size_bytes = SEGMENT_HEADER_BYTES + sum(entry.data_bytes for entry in coverage.entries)
        return staged.etag if (staged.size_bytes, staged.crc32) == (size_bytes, crc32) else None

    def _delete(self, segment: SegmentRolled, etag: str) -> None:
        # A copy that was staged since then may hold other bytes, and has an event of its own.
        with suppress(ReplacedError):
            self.objects.delete(segment.staged_key, if_match=etag)

    def _without_copy(self, segment: SegmentRolled) -> UploadResult:
        """Tell a segment whose copy was dealt with, before or meanwhile, from one that was lost on its way here.

        A quarantined copy is reported as such again: the upload that quarantined it may have died before its report.
        """
        record = read_quarantine(self.table, segment)
        if record is None or record.etag != segment.etag:
            coverage = read_coverage(self.table, segment.stream.incarnation, segment.first_offset, segment.next_offset)
            if coverage.is_removed(segment.next_offset):
                return UploadResult(removed=True)
            if coverage.holds(segment.first_offset, segment.next_offset):
                return UploadResult(fragments_present=len(coverage.entries))
        if record is None:
            raise ObjectNotFoundError(segment.staged_key)
        return UploadResult(quarantined=record.key, reason=record.reason)

    def _archive(
        self, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage, writer: FragmentWriter
    ) -> UploadResult:
        """Write and commit, in the order of their offsets, the fragments that the manifest does not hold."""
        committed: list[FragmentEntry] = []
        present = len(coverage.entries)
        cutter = SegmentCutter(segment, coverage, self.fragment_bytes, self.spool_dir, self.zstd_level)
        # `fragments` is closed here because it reads ahead in threads. Left to the garbage collector, it would wait for
        # these wherever that runs, which may be inside of a lock that they need to end: a deadlock.
        with (
            ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put") as pool,
            closing(cutter),
            closing(_cut(cutter, staged)) as fragments,
        ):
            puts: Window[FragmentEntry] = Window(pool)  # `commit_until` bounds it

            def commit_until(puts_left: int) -> None:
                """Commit the oldest fragments until `puts_left` are still being written: spool space stays bounded."""
                nonlocal present
                while len(puts) > puts_left:
                    entry = puts.take()
                    if writer.commit(entry):
                        committed.append(entry)
                    else:
                        self._check_archived_alike(segment, entry, writer)
                        present += 1

            failure: ColdstreamError | None = None
            while True:
                try:
                    fragment = next(fragments, None)
                except ColdstreamError as err:
                    failure = err
                    break
                if fragment is None:
                    break
                puts.submit(partial(writer.put, fragment, coverage.generation))
                commit_until(PUTS_AT_ONCE)
            # Also if verification failed, as these fragments passed it. If a commit failed, this is not reached: no
            # fragment is committed after one that was not.
            commit_until(0)
            if failure is not None:
                raise failure
        return UploadResult(len(committed), present, sum(entry.data_bytes for entry in committed))

    def _check_archived_alike(self, segment: SegmentRolled, entry: FragmentEntry, writer: FragmentWriter) -> None:
        """Raise OverlapError unless other uploads meanwhile committed exactly this entry's chunks, bit for bit.

        The comparison with the archive did not see what they committed, so anything else must be compared again.
        """
        coverage = read_coverage(self.table, segment.stream.incarnation, entry.first_offset, entry.next_offset)
        is_exact = coverage.holds_just(entry.first_offset, entry.next_offset)
        if not is_exact or [other.data_crc32 for other in coverage.entries] != [entry.data_crc32]:
            raise OverlapError(entry.key, entry.first_offset, entry.next_offset, "what others committed meanwhile")
        for other in coverage.entries:
            writer.is_named(other)


def _cut(cutter: SegmentCutter, staged: StagedSegment) -> Generator[CutFragment, None, None]:
    with closing(staged.blocks()) as blocks:
        for block in blocks:
            yield from cutter.feed(block)
    yield from cutter.finish()
