"""The upload of one rolled segment: verify, cut, write, commit, and only then let go of the staged copy.

Whatever stops it half-way, doing it again ends in the same manifest and the same objects: what the manifest covers is
skipped, what is in the bucket is recognised by its checksum, and what is neither is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from coldstream.archive.commit import commit_fragment
from coldstream.archive.coverage import Coverage, read_coverage
from coldstream.archive.cut import SegmentCutter
from coldstream.archive.draft import CutFragment
from coldstream.archive.quarantine import is_quarantined, quarantine
from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.staged import StagedSegment
from coldstream.errors import (
    BadCrcError,
    ConflictError,
    CorruptionError,
    InvalidEventError,
    LostRaceError,
    ObjectExistsError,
    ObjectNotFoundError,
    OverlapError,
    UnavailableError,
)
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms

PUTS_AT_ONCE = 2
"""Fragments on their way to the bucket while the next is cut; each holds its size in spool space."""

MAX_PLANS = 5
"""Plans of an upload, each on what the manifest holds by then, before the event is given back to its queue."""

MAX_GENERATIONS = 16
"""Keys tried for a fragment whose first is taken by other bytes, as after a change of the target size half-way."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What became of a segment. `quarantined` is the key where it went if it failed verification."""

    fragments_committed: int = 0
    fragments_present: int = 0
    bytes_committed: int = 0
    quarantined: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Uploader:
    """Archives announced segments into one bucket and one table.

    A fragment ends after the chunk that takes its data past `fragment_bytes`. `spool_dir` is where up to
    three fragments at a time wait on disk; the system's temporary directory unless given.
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    fragment_bytes: int
    spool_dir: Path | None = None
    now: Callable[[], TimestampMs] = now_ms

    def upload(self, segment: SegmentRolled) -> Upload:
        """Archive a segment and delete its staged copy. Safe to repeat, and to run at once with others.

        Cost, beside reading the staged copy: a PUT and two DynamoDB requests a fragment. A segment that fails
        verification goes to quarantine and is no error. Raises InvalidEventError when the event contradicts the
        configuration, ObjectNotFoundError when the staged copy is missing and the manifest does not cover it; nothing
        is lost by trying again.
        """
        if segment.bucket != self.objects.bucket:
            raise InvalidEventError(
                "staged.bucket", f"is {segment.bucket!r}; this archive's is {self.objects.bucket!r}"
            )
        staged_key = self.keys.staged(segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if segment.staged_key != staged_key:
            # What is at another key may be the only copy of another segment, and is not this event's to delete.
            raise InvalidEventError("staged.key", f"is {segment.staged_key!r}; this segment's is {staged_key!r}")
        for _ in range(MAX_PLANS):
            try:
                return self._upload(segment)
            except OverlapError as err:
                # Others have committed a part of a fragment since the plan was made: it is cut around that part.
                overlap = err
        raise LostRaceError(f"others kept committing parts of {segment}") from overlap

    def _upload(self, segment: SegmentRolled) -> Upload:
        """Archive what the manifest does not hold. Raises OverlapError when it holds a part of a fragment by then."""
        coverage = read_coverage(self.table, segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if _is_whole(segment, coverage):
            self.objects.delete(segment.staged_key)
            return Upload(fragments_present=len(coverage.entries))
        try:
            staged = StagedSegment(self.objects, segment.staged_key, segment.size_bytes)
            done = self._verify_and_archive(segment, staged, coverage)
        except ObjectNotFoundError as err:
            if err.key != segment.staged_key:
                raise
            return self._missing(segment)
        if done.quarantined is None:
            self.objects.delete(segment.staged_key)
        else:
            with suppress(ConflictError):  # staged anew meanwhile: that copy, maybe a good one, has an event of its own
                self.objects.delete(segment.staged_key, if_match=staged.etag)
        return done

    def _missing(self, segment: SegmentRolled) -> Upload:
        """Tell a segment that was dealt with, before or meanwhile, from one that was lost on the way."""
        coverage = read_coverage(self.table, segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if coverage.holds(segment.first_offset, segment.next_offset):
            return Upload(fragments_present=len(coverage.entries))
        aside = is_quarantined(self.table, segment)
        if aside is None:
            raise ObjectNotFoundError(segment.staged_key)
        return Upload(quarantined=aside.key, reason=aside.reason)

    def _verify_and_archive(self, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage) -> Upload:
        try:
            return self._archive(segment, staged, coverage)
        except (CorruptionError, OverlapError) as err:
            if err.source != segment.staged_key:
                raise  # it is the manifest that is corrupt, or what it holds another than it was planned on
            key = quarantine(
                self.table, self.objects, self.keys, segment, etag=staged.etag, reason=str(err), now=self.now
            )
            return Upload(quarantined=key, reason=str(err))

    def _archive(self, segment: SegmentRolled, staged: StagedSegment, coverage: Coverage) -> Upload:
        committed: list[FragmentEntry] = []
        present = len(coverage.entries)
        under_way: deque[Future[FragmentEntry]] = deque()

        def settle(leave: int) -> None:
            """Commit, in order, until `leave` fragments are still on their way: what waits on disk stays bounded."""
            nonlocal present
            while len(under_way) > leave:
                entry = under_way.popleft().result()
                if commit_fragment(self.table, segment.stream, entry, self.now):
                    committed.append(entry)
                else:
                    present += 1

        cutter = SegmentCutter(segment, coverage, self.fragment_bytes, self.spool_dir)
        with ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put") as pool, closing(cutter):
            try:
                for block in staged.blocks():
                    for fragment in cutter.feed(block):
                        under_way.append(pool.submit(self._put, segment, fragment))
                        settle(leave=PUTS_AT_ONCE)
                for fragment in cutter.finish():
                    under_way.append(pool.submit(self._put, segment, fragment))
            finally:
                # Also when verification failed: these fragments passed it.
                settle(leave=0)
        return Upload(len(committed), present, sum(entry.data_bytes for entry in committed))

    def _put(self, segment: SegmentRolled, fragment: CutFragment) -> FragmentEntry:
        """Write a fragment at the first key that is free, or holds it already."""
        entry = fragment.entry
        with fragment:
            for generation in range(MAX_GENERATIONS):
                key = self.keys.fragment(segment.stream.incarnation, entry.first_offset, generation)
                fragment.body.seek(0)
                try:
                    self.objects.put_new(key, fragment.body, size_bytes=entry.object_bytes, crc32=entry.crc32)
                except ObjectExistsError:
                    there = self.objects.info(key)
                    if there is None or there.size_bytes != entry.object_bytes or there.crc32 != entry.crc32:
                        continue
                except BadCrcError as err:
                    # It is the copy on its way that went bad: the segment was verified.
                    raise UnavailableError(f"{key} did not arrive as it was sent") from err
                return replace(entry, key=key, generation=generation)
        raise UnavailableError(
            f"{MAX_GENERATIONS} objects with other bytes are at the keys of {entry.first_offset:020}"
        )


def _is_whole(segment: SegmentRolled, coverage: Coverage) -> bool:
    """Tell whether the manifest holds the segment, so that its staged copy need not even be read.

    Its size has to be that of what is held: to the byte, or where compaction has put it into a larger fragment, about.
    """
    least, most = coverage.data_bytes(segment.first_offset, segment.next_offset)
    return (
        coverage.holds(segment.first_offset, segment.next_offset)
        and least <= segment.size_bytes - SEGMENT_HEADER_BYTES <= most
    )
