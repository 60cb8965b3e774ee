"""Announce slices of segments: stage each, put its event on the bus, and find out what became of it.

One set of rules serves the `announce` command, which announces everything first and then waits, and the agent, which
waits for each slice before it announces the next:

1. A slice that the manifest covers is not announced, unless it is contested: then it may be of another history, and
   only the upload function can tell.
2. A slice that is announced stays pending until it is archived or in quarantine. `outcome` tells which, whatever other
   replicas announce of the same offsets meanwhile.
3. An event that came to nothing may have ended in the dead-letter queue. Whoever waits gives up after a while and
   announces the slice again: the copy that is staged is not sent twice, and a second event does no harm.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from coldstream.archive.borders import QuietSpans
from coldstream.archive.coverage import covered_to
from coldstream.archive.envelope import DETAIL_TYPE, source_of
from coldstream.archive.events import detail_of
from coldstream.archive.quarantine import read_quarantine
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.ingest.bus import EventBridgeBus, EventBus
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.manifest.cluster import check_cluster
from coldstream.manifest.entry import Quarantine
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.stream import StreamId
from coldstream.retry import Backoff
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.settings import Settings
from coldstream.store.table import DynamoTable

FIRST_POLL_S = 0.1
MAX_POLL_S = 5.0
POLL_FACTOR = 1.5
"""Of the pauses between two looks at what became of an announcement."""

SDK_CONNECTIONS = 10
"""To S3, unless told otherwise."""


class SliceOutcome(Enum):
    """What became of an announced slice."""

    PENDING = auto()
    """The upload function has not dealt with it yet."""

    ARCHIVED = auto()
    """The manifest covers it."""

    QUARANTINED = auto()
    """It failed verification, or is of another history than the archive."""

    UNKNOWN = auto()
    """Its staged copy is gone, and nothing proves that anyone looked at it. It has to be announced again."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A slice whose event is on the bus.

    `is_contested` says that the archive may have another history of its offsets. `quarantined_before` is what the
    manifest said, before the event, of the copy of these offsets that went to quarantine last. `generation` is that of
    the head before the event, of a contested slice alone: each deletion of the stream raises it.
    """

    rolled: SegmentRolled
    is_contested: bool
    quarantined_before: Quarantine | None
    generation: int = 0


@dataclass(slots=True)
class AnnouncementReport:
    """What became of the rolled segments of a stream.

    `announced` are new, `archived` were in the manifest already, `gone` had been deleted by retention before they were
    staged. `quarantined` are those of the announced that failed verification, if somebody waited for them.
    """

    stream: StreamId
    announced: list[SegmentRolled] = field(default_factory=list)
    announced_bytes: int = 0
    archived: int = 0
    gone: int = 0
    quarantined: list[SegmentRolled] = field(default_factory=list)
    pending: list[Announcement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Announces to one archive. Calls block; threads may share it. With `dry_run`, `announce` changes nothing."""

    table: ManifestTable
    objects: ObjectStore
    bus: EventBus
    keys: Keys
    dry_run: bool = False

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        dry_run: bool = False,
        connections: int = SDK_CONNECTIONS,
    ) -> Announcer:
        """Make one for the archive that COLDSTREAM_* name. Raises InvalidSettingError, naming the variable."""
        settings = Settings.from_environment(environment)
        bus = environment.get("COLDSTREAM_EVENT_BUS")
        if not bus:
            raise InvalidSettingError("COLDSTREAM_EVENT_BUS", "is not set")
        return cls(
            DynamoTable(settings.table),
            S3Objects(settings.bucket, connections=connections),
            EventBridgeBus(bus),
            Keys(settings.prefix, settings.cluster),
            dry_run,
        )

    def check_accepted(self, stream: StreamId) -> None:
        """Raise OtherClusterError if the stream is bound to another cluster: its events would be refused.

        Raises StreamDeletedError if the stream is deleted and may still be undeleted: nothing of it is archived, and
        what is not archived must be kept. Cost: two GetItems.
        """
        check_cluster(stream, self.table.bound_cluster(stream.vhost, stream.name), self.keys.cluster)
        head = self.table.head(stream.incarnation)
        if head is not None and head.can_be_undeleted:
            check_not_deleted(head)

    def is_covered(self, slice_: SegmentSlice | SegmentRolled, stream: StreamId) -> bool:
        """Tell whether the manifest covers all offsets of a slice. Cost: one Query, usually."""
        reached = covered_to(self.table, stream.incarnation, slice_.first_offset, slice_.next_offset)
        return reached >= slice_.next_offset

    def stage(
        self,
        slice_: SegmentSlice,
        stream: StreamId,
        *,
        cut_every_ms: int | None = None,
        quiet: QuietSpans | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> SegmentRolled:
        """Stage a slice as `ingest.stage.stage` does."""
        return stage(slice_, stream, self.objects, self.keys, cut_every_ms=cut_every_ms, quiet=quiet, on_bytes=on_bytes)

    def put(self, rolled: SegmentRolled, *, is_contested: bool = False) -> Announcement:
        """Put the event of a staged slice. Cost: a GetItem, two for a contested one, and one PutEvents."""
        # Read before the event: an entry that is there now is of an earlier copy, and says nothing about this one.
        generation = self._generation(rolled.stream) if is_contested else 0
        announcement = Announcement(rolled, is_contested, read_quarantine(self.table, rolled), generation)
        self.bus.put(source=source_of(rolled.cluster), detail_type=DETAIL_TYPE, detail=detail_of(rolled))
        return announcement

    def outcome(self, announcement: Announcement) -> SliceOutcome:
        """Look once what became of an announced slice.

        Cost: a Query and a GetItem while it is pending, and a HEAD more at the end. For a contested one a HEAD while it
        is pending, and two GetItems and a Query more at the end.
        """
        rolled = announcement.rolled
        if announcement.is_contested:
            # Covered offsets prove nothing about a contested slice. The function deletes the staged copy last, so once
            # that is gone, what the manifest says is about this slice; read the other way round, it might not be yet.
            if self._is_staged(rolled):
                return SliceOutcome.PENDING
            if self._is_put_aside(announcement):
                return SliceOutcome.QUARANTINED
            # Of a deleted stream the function drops the copy without a look at it. The stream may be back by now.
            is_judged = self._generation(rolled.stream) == announcement.generation
            return (
                SliceOutcome.ARCHIVED if is_judged and self.is_covered(rolled, rolled.stream) else SliceOutcome.UNKNOWN
            )
        if self.is_covered(rolled, rolled.stream):
            return SliceOutcome.ARCHIVED
        # The same bytes may have been in quarantine before: then the entry is this copy's only after the function has
        # dealt with it. It may also have archived it since the look above, so that takes a second one.
        if not self._is_put_aside(announcement) or self._is_staged(rolled):
            return SliceOutcome.PENDING
        return SliceOutcome.ARCHIVED if self.is_covered(rolled, rolled.stream) else SliceOutcome.QUARANTINED

    def announce(
        self, stream: StreamId, segments: Iterable[SegmentSlice], advance: Callable[[int], None]
    ) -> AnnouncementReport:
        """Announce the segments that the manifest does not cover; `advance` is told the bytes that are dealt with.

        Raises as `check_accepted`. Cost: two GetItems, one Query a segment, and for each one announced the cost of
        `stage` and of `put`.
        """
        self.check_accepted(stream)
        report = AnnouncementReport(stream)
        for segment in segments:
            if self.is_covered(segment, stream):
                report.archived += 1
                advance(segment.size_bytes)
                continue
            try:
                rolled = self._announce_one(segment, report, advance)
            except FileNotFoundError:
                report.gone += 1
                continue
            report.announced.append(rolled)
            report.announced_bytes += rolled.size_bytes
        return report

    def wait(self, reports: Iterable[AnnouncementReport], timeout_s: float, advance: Callable[[int], None]) -> None:
        """Wait until all that was announced is archived or in quarantine; `advance` is told how many segments are.

        Raises UnavailableError when nothing was archived for `timeout_s`.
        """
        pending = [(report, announcement) for report in reports for announcement in report.pending]
        backoff = Backoff(FIRST_POLL_S, MAX_POLL_S, POLL_FACTOR)
        deadline = time.monotonic() + timeout_s
        while pending:
            left: list[tuple[AnnouncementReport, Announcement]] = []
            for report, announcement in pending:
                outcome = self.outcome(announcement)
                if outcome is SliceOutcome.PENDING:
                    left.append((report, announcement))
                elif outcome is SliceOutcome.QUARANTINED:
                    report.quarantined.append(announcement.rolled)
            if len(left) < len(pending):
                advance(len(pending) - len(left))
                # Progress moves the deadline: a long backlog is no failure while it gets shorter.
                deadline = time.monotonic() + timeout_s
                backoff.reset()
            elif time.monotonic() > deadline:
                raise UnavailableError(
                    f"{len(left)} segments are announced and not archived, the first is {left[0][1].rolled};"
                    " see the upload function's log and its dead-letter queue"
                )
            pending = left
            if pending:
                time.sleep(backoff.next_delay_s())

    def _announce_one(
        self, segment: SegmentSlice, report: AnnouncementReport, advance: Callable[[int], None]
    ) -> SegmentRolled:
        stream = report.stream
        if self.dry_run:
            key = self.keys.staged(stream.incarnation, segment.first_offset, segment.next_offset)
            advance(segment.size_bytes)
            return SegmentRolled(
                stream, segment.first_offset, segment.next_offset, segment.size_bytes, self.objects.bucket, key
            )
        sent_bytes = 0

        def count(size_bytes: int) -> None:
            nonlocal sent_bytes
            sent_bytes += size_bytes
            advance(size_bytes)

        rolled = self.stage(segment, stream, on_bytes=count)
        advance(segment.size_bytes - sent_bytes)  # the parts that were there already
        report.pending.append(self.put(rolled))
        return rolled

    def _generation(self, stream: StreamId) -> int:
        head = self.table.head(stream.incarnation)
        return 0 if head is None else head.generation

    def _is_staged(self, rolled: SegmentRolled) -> bool:
        return self.objects.info(rolled.staged_key) is not None

    def _is_put_aside(self, announcement: Announcement) -> bool:
        """Tell whether a copy of the slice is in quarantine that may be the announced one.

        Without an ETag it is not known which copy was announced: the function had dealt with it before it could be
        looked at. Then any copy counts.
        """
        aside = read_quarantine(self.table, announcement.rolled)
        if aside is None:
            return False
        return announcement.rolled.etag in {None, aside.etag} or aside != announcement.quarantined_before
