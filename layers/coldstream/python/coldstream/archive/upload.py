"""The upload of one rolled segment: verify, cut, write, commit, and only then let go of the staged copy.

Whatever stops it half-way, doing it again ends in the same manifest and the same objects: what the manifest covers is
skipped, what is in the bucket is recognised by its checksum, and what is neither is written. What is skipped is held to
what is archived first (`archive.contradiction`): of two histories of one stream, the one that came first stays, and no
chunk of the other is archived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from coldstream.archive.bound import claim
from coldstream.archive.commit import commit_fragment
from coldstream.archive.contradiction import check_history
from coldstream.archive.coverage import Coverage, read_coverage
from coldstream.archive.cut import SegmentCutter
from coldstream.archive.draft import CutFragment
from coldstream.archive.quarantine import is_quarantined, quarantine
from coldstream.archive.rolled import SegmentRolled
from coldstream.archive.staged import StagedSegment
from coldstream.errors import (
    BadCrcError,
    ColdstreamError,
    ContradictionError,
    CorruptionError,
    InvalidEventError,
    LostRaceError,
    ObjectExistsError,
    ObjectNotFoundError,
    OverlapError,
    ReplacedError,
    UnavailableError,
)
from coldstream.format.segment import SEGMENT_HEADER_BYTES
from coldstream.manifest.entry import FragmentEntry
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs, now_ms

PUTS_AT_ONCE = 2
"""Fragments on their way to the bucket while the next is cut; each holds its size in spool space."""

MAX_PLANS = 8
"""Plans of an upload, each on what the manifest holds by then, before the event is given back to its queue."""

MAX_GENERATIONS = 16
"""Keys tried for a fragment whose first is taken by other bytes, as after a change of the target size half-way."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What became of a segment. `quarantined` is the key where it went if it could not be archived, and `reason` why.

    `is_stale` says that the announced copy was dealt with before: another one is staged by now, and has an event of its
    own.
    """

    fragments_committed: int = 0
    fragments_present: int = 0
    bytes_committed: int = 0
    quarantined: str | None = None
    reason: str | None = None
    is_stale: bool = False


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

        Only the copy that was announced is judged. Cost, beside reading it: a PUT and two DynamoDB requests a fragment;
        where all of it is archived already, a HEAD in place of reading it. What fails verification, and what is of
        another history than the archive, goes to quarantine and is no error. Raises InvalidEventError when the event
        contradicts the configuration, OtherClusterError when the stream is bound to another cluster than the one that
        announced it, ObjectNotFoundError when the staged copy is missing and the manifest does not
        cover it; nothing is lost by trying again.
        """
        if segment.bucket != self.objects.bucket:
            raise InvalidEventError(
                "staged.bucket", f"is {segment.bucket!r}; this archive's is {self.objects.bucket!r}"
            )
        keys = replace(self.keys, cluster=segment.cluster)
        staged_key = keys.staged(segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if segment.staged_key != staged_key:
            # What is at another key may be the only copy of another segment, and is not this event's to delete.
            raise InvalidEventError("staged.key", f"is {segment.staged_key!r}; this segment's is {staged_key!r}")
        claim(self.table, segment.stream, segment.cluster)
        for _ in range(MAX_PLANS):
            try:
                return self._upload(segment)
            except OverlapError as err:
                # Others have committed some of it since the plan was made: what they have is looked at first.
                overlap = err
            except ObjectNotFoundError as err:
                if err.key != segment.staged_key:
                    raise
                return self._missing(segment)
            except ReplacedError as err:
                if err.key != segment.staged_key:
                    raise
                return Upload(is_stale=True)
        raise LostRaceError(f"others kept committing parts of {segment}") from overlap

    def _upload(self, segment: SegmentRolled) -> Upload:
        """Archive what the manifest does not hold. Raises OverlapError when others commit some of it meanwhile."""
        coverage = read_coverage(self.table, segment.stream.incarnation, segment.first_offset, segment.next_offset)
        if etag := self._archived_to_the_bit(segment, coverage):
            self._delete(segment, etag)
            return Upload(fragments_present=len(coverage.entries))
        staged = StagedSegment(self.objects, segment.staged_key, segment.etag)
        try:
            check_history(self.objects, segment, staged, coverage)
            done = self._archive(segment, staged, coverage)
        except (CorruptionError, ContradictionError) as err:
            if isinstance(err, CorruptionError) and err.source != segment.staged_key:
                raise  # it is the archive that is corrupt
            reason = str(err)
            key = quarantine(
                self.table, self.objects, self.keys, segment, etag=staged.etag, reason=reason, now=self.now
            )
            done = Upload(quarantined=key, reason=reason)
        self._delete(segment, staged.etag)
        return done

    def _archived_to_the_bit(self, segment: SegmentRolled, coverage: Coverage) -> str | None:
        """Return the ETag of the staged copy if its checksum is that of what is archived: then it need not be read."""
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
        with suppress(ReplacedError):  # staged anew meanwhile: that copy, maybe another, has an event of its own
            self.objects.delete(segment.staged_key, if_match=etag)

    def _missing(self, segment: SegmentRolled) -> Upload:
        """Tell a segment that was dealt with, before or meanwhile, from one that was lost on the way.

        Of a copy that was put aside the answer stays that: whoever did it may have died before it could report it.
        """
        aside = is_quarantined(self.table, segment)
        if aside is None or aside.etag != segment.etag:
            coverage = read_coverage(self.table, segment.stream.incarnation, segment.first_offset, segment.next_offset)
            if coverage.holds(segment.first_offset, segment.next_offset):
                return Upload(fragments_present=len(coverage.entries))
        if aside is None:
            raise ObjectNotFoundError(segment.staged_key)
        return Upload(quarantined=aside.key, reason=aside.reason)

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
                    self._check_held(segment, entry)
                    present += 1

        cutter = SegmentCutter(segment, coverage, self.fragment_bytes, self.spool_dir)
        with ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put") as pool, closing(cutter):
            fragments = _cut(cutter, staged)
            failure: ColdstreamError | None = None
            while failure is None:
                try:
                    fragment = next(fragments, None)
                except ColdstreamError as err:
                    failure = err
                    continue
                if fragment is None:
                    break
                under_way.append(pool.submit(self._put, segment, fragment))
                settle(leave=PUTS_AT_ONCE)
            # Also when verification failed: these fragments passed it. But none after one that was not committed.
            settle(leave=0)
            if failure is not None:
                raise failure
        return Upload(len(committed), present, sum(entry.data_bytes for entry in committed))

    def _check_held(self, segment: SegmentRolled, entry: FragmentEntry) -> None:
        """Raise OverlapError unless what others committed meanwhile is, to the bit, what this entry was to be."""
        held = read_coverage(self.table, segment.stream.incarnation, entry.first_offset, entry.next_offset)
        is_just_it = held.holds_just(entry.first_offset, entry.next_offset)
        if not is_just_it or [other.data_crc32 for other in held.entries] != [entry.data_crc32]:
            raise OverlapError(entry.key, entry.first_offset, entry.next_offset, "what others committed meanwhile")

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


def _cut(cutter: SegmentCutter, staged: StagedSegment) -> Iterator[CutFragment]:
    with closing(staged.blocks()) as blocks:
        for block in blocks:
            yield from cutter.feed(block)
    yield from cutter.finish()
