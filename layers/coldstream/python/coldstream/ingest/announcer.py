"""Announce rolled segments: stage those that the manifest does not cover, put their events, wait until it does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from coldstream.archive.coverage import read_coverage
from coldstream.archive.events import DETAIL_TYPE, detail_of, source_of
from coldstream.archive.quarantine import is_quarantined
from coldstream.archive.rolled import SegmentRolled
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.ingest.bus import EventBridgeBus, EventBus
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.manifest.cluster import check_cluster
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.settings import Settings
from coldstream.store.table import DynamoTable

POLL_S = 0.5


@dataclass(slots=True)
class AnnouncementReport:
    """What became of the rolled segments of a stream.

    `announced` are new, `archived` were in the manifest already, `gone` had been deleted by retention before they were
    staged. `quarantined` are those of the announced that failed verification, as far as they were waited for.
    """

    stream: StreamId
    announced: list[SegmentRolled] = field(default_factory=list)
    announced_bytes: int = 0
    archived: int = 0
    gone: int = 0
    quarantined: list[SegmentRolled] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Announces to one archive. With `dry_run` nothing is staged and no event put."""

    table: ManifestTable
    objects: ObjectStore
    bus: EventBus
    keys: Keys
    dry_run: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, *, dry_run: bool = False) -> Announcer:
        """Make one for the archive that COLDSTREAM_* name. Raises InvalidSettingError, naming the variable."""
        settings = Settings.from_environment(environment)
        bus = environment.get("COLDSTREAM_EVENT_BUS")
        if not bus:
            raise InvalidSettingError("COLDSTREAM_EVENT_BUS", "is not set")
        return cls(
            DynamoTable(settings.table),
            S3Objects(settings.bucket),
            EventBridgeBus(bus),
            Keys(settings.prefix, settings.cluster),
            dry_run,
        )

    def announce(
        self, stream: StreamId, segments: Iterable[SegmentSlice], advance: Callable[[int], None]
    ) -> AnnouncementReport:
        """Announce the segments that the manifest does not cover; `advance` is told of bytes dealt with.

        Raises OtherClusterError when another cluster was first to announce the stream. Cost: a GetItem, one Query a
        segment, and for those announced what `stage` costs, and one event.
        """
        check_cluster(stream, self.table.bound_cluster(stream.vhost, stream.name), self.keys.cluster)
        report = AnnouncementReport(stream)
        for segment in segments:
            coverage = read_coverage(self.table, stream.incarnation, segment.first_offset, segment.next_offset)
            if coverage.holds(segment.first_offset, segment.next_offset):
                report.archived += 1
                advance(segment.size_bytes)
                continue
            try:
                rolled = self._stage(segment, report, advance)
            except FileNotFoundError:
                report.gone += 1
                continue
            report.announced.append(rolled)
            report.announced_bytes += rolled.size_bytes
        return report

    def wait(self, reports: Iterable[AnnouncementReport], timeout_s: float, advance: Callable[[int], None]) -> None:
        """Wait until the manifest covers what was announced, or has it in quarantine; `advance` is told of segments.

        Raises UnavailableError when nothing was archived for `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        waiting = [(report, rolled) for report in reports for rolled in report.announced]
        while waiting:
            left = [(report, rolled) for report, rolled in waiting if not self._is_settled(report, rolled)]
            if len(left) < len(waiting):
                advance(len(waiting) - len(left))
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                raise UnavailableError(
                    f"{len(left)} segments are announced and not archived, the first is {left[0][1]};"
                    " see the upload function's log and its dead-letter queue"
                )
            waiting = left
            if waiting:
                time.sleep(POLL_S)

    def _stage(
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

        rolled = stage(segment, stream, self.objects, self.keys, on_bytes=count)
        advance(segment.size_bytes - sent_bytes)  # what was there already
        self.bus.put(source=source_of(rolled.cluster), detail_type=DETAIL_TYPE, detail=detail_of(rolled))
        return rolled

    def _is_settled(self, report: AnnouncementReport, rolled: SegmentRolled) -> bool:
        coverage = read_coverage(self.table, rolled.stream.incarnation, rolled.first_offset, rolled.next_offset)
        if coverage.holds(rolled.first_offset, rolled.next_offset):
            return True
        aside = is_quarantined(self.table, rolled)
        if aside is None or rolled.etag not in {None, aside.etag}:
            return False  # what is in quarantine is the copy of an earlier announcement
        if self.objects.info(rolled.staged_key) is not None:
            return False  # the same bytes as earlier, not dealt with yet
        report.quarantined.append(rolled)
        return True
