"""The scrub by parts: a task is a whole stream, or if it is long, a range of its log, or everything but the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from coldstream.errors import ColdstreamError
from coldstream.manifest.stream import StreamId
from coldstream.scrub.account import Account
from coldstream.scrub.damage import Finding
from coldstream.scrub.part import CLOSING, OPENING, WALK, ScrubPart, whole_account
from coldstream.scrub.report import ScrubReport, finding_to_json
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.units import Offset
from coldstream_spark.maintenance.archive import RemoteArchive
from coldstream_spark.maintenance.split import borders
from coldstream_spark.maintenance.summary import MAX_TOLD
from coldstream_spark.maintenance.tasks import TaskFailure, TaskRunner


@dataclass(frozen=True, slots=True)
class LongStream:
    """A stream that is shared by several tasks."""

    stream: StreamId
    borders: tuple[Offset, ...]


@dataclass(frozen=True, slots=True)
class PartTask:
    """A part of one stream."""

    stream: StreamId
    part: ScrubPart


@dataclass
class ScrubTotals:
    """What all tasks found; of the findings the first MAX_TOLD."""

    streams: int = 0
    fragments: int = 0
    unread: int = 0
    unsettled: int = 0
    requests: int = 0
    read_bytes: int = 0
    mended: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, object]] = field(default_factory=list)
    on_fragments: Callable[[int], None] = lambda _: None

    @property
    def found(self) -> int:
        """All damages."""
        return self.counts.total()

    def add(self, report: ScrubReport) -> None:
        """Add the report of a task."""
        position = report.position
        self.fragments += position.fragments
        self.unread += position.unread
        self.unsettled += position.unsettled
        self.requests += report.spent.requests
        self.read_bytes += report.spent.data_bytes
        self.mended += report.found - report.left
        self.on_fragments(position.fragments)
        self.counts.update({damage.value: count for damage, count in report.counts.items()})
        room = MAX_TOLD - len(self.findings)
        self.findings += (_told(report, finding) for finding in report.findings[:room])

    def to_json(self) -> dict[str, object]:
        """Return the totals for programs."""
        return {
            "streams": self.streams,
            "fragments": self.fragments,
            "unread": self.unread,
            "unsettled": self.unsettled,
            "requests": self.requests,
            "read_bytes": self.read_bytes,
            "damages": dict(self.counts),
            "mended": self.mended,
            "findings": self.findings,
            "not_told": self.found - len(self.findings),
        }


def _told(report: ScrubReport, finding: Finding) -> dict[str, object]:
    return finding_to_json(finding, is_mended=finding in report.mended)


def scrub_streams(  # noqa: PLR0917  as the others have them
    archive: RemoteArchive,
    options: ScrubOptions,
    most_fragments: int,
    runner: TaskRunner,
    streams: Iterable[StreamId],
    totals: ScrubTotals,
) -> Iterator[TaskFailure]:
    """Scrub streams, add up what is found, and yield what failed. Long streams come last, one after the other."""
    long: list[LongStream] = []

    def results() -> Iterator[ScrubReport | TaskFailure]:
        for result in runner.map(partial(scrub_stream, archive, options, most_fragments), streams):
            totals.streams += 1
            if isinstance(result, LongStream):
                long.append(result)
            else:
                yield result
        for one in long:
            yield from scrub_long(archive, options, runner, one)

    for result in results():
        if isinstance(result, TaskFailure):
            yield result
        else:
            totals.add(result)


def scrub_stream(
    archive: RemoteArchive, options: ScrubOptions, most_fragments: int, stream: StreamId
) -> ScrubReport | LongStream | TaskFailure:
    """Scrub a stream, unless it is long."""
    try:
        head = archive.open().table.head(stream.incarnation)
        found = () if head is None else borders(head, most_fragments)
    except ColdstreamError:
        found = ()  # the scrub tells what is wrong with the head
    return LongStream(stream, found) if found else scrub_part(archive, options, PartTask(stream, ScrubPart()))


def scrub_part(archive: RemoteArchive, options: ScrubOptions, task: PartTask) -> ScrubReport | TaskFailure:
    """Scrub a part of a stream."""
    stores = archive.open()
    try:
        scrubber = Scrubber(stores.table, stores.objects, stores.keys, stores.now)
        return scrubber.run_part(task.stream, task.part, options)
    except ColdstreamError as err:
        return TaskFailure.of(err, task.stream)


def scrub_long(
    archive: RemoteArchive, options: ScrubOptions, runner: TaskRunner, long: LongStream
) -> Iterator[ScrubReport | TaskFailure]:
    """Scrub a long stream: its account is opened here, its log walked by many, and the rest checked by one task."""
    opening = scrub_part(archive, options, PartTask(long.stream, ScrubPart(OPENING)))
    yield opening
    if isinstance(opening, TaskFailure):
        return
    account = opening.position.account
    bounds: list[Offset | None] = [Offset(0), *long.borders, None]
    ranges = (
        PartTask(long.stream, ScrubPart(WALK, account, after, until))
        for after, until in pairwise(bounds)
        if after is not None
    )
    accounts: list[Account | None] = []
    for result in runner.map(partial(scrub_part, archive, options), ranges):
        yield result
        accounts.append(None if isinstance(result, TaskFailure) else result.position.account)
    closing = PartTask(long.stream, ScrubPart(CLOSING, whole_account(account, accounts)))
    yield from runner.map(partial(scrub_part, archive, options), [closing])
