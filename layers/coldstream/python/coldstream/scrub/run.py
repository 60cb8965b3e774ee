"""A run of the scrub: stream after stream, within a budget, from where the last run ended.

    Scrubber(table, objects, keys, now).run(None, ScrubOptions(), Budget(requests=10_000))

A pass over the archive takes as many runs as the budget makes of it. Its position is saved at the end of each run. If a
run is killed, the next one begins where the killed one began: checks change nothing, and repairs are safe to repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from time import sleep

from coldstream.errors import CorruptionError
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import StreamId
from coldstream.scrub.budget import Budget, BudgetSpentError, Meter, Spent
from coldstream.scrub.counts_check import check_counts
from coldstream.scrub.damage import Damage, Finding
from coldstream.scrub.examiner import Examiner
from coldstream.scrub.gaps_check import check_gaps
from coldstream.scrub.journal_check import check_journal, check_replay
from coldstream.scrub.log_walk import LogWalk
from coldstream.scrub.maps_check import check_maps
from coldstream.scrub.notes_check import check_notes
from coldstream.scrub.part import ScrubPart
from coldstream.scrub.position import PassPosition, Stage
from coldstream.scrub.quarantines_check import check_quarantines
from coldstream.scrub.reads import ScrubReads
from coldstream.scrub.removed_check import check_tombstones
from coldstream.scrub.report import RunFindings, ScrubReport
from coldstream.scrub.time_check import check_times
from coldstream.scrub.totals_check import begin_account, check_totals
from coldstream.scrub.trouble import Trouble
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.sortkeys import registry_key
from coldstream.units import Offset, TimestampMs

MAX_COUNTED_PAGES = 20
"""Pages of the registry that are read to count the streams: 10,000. Past that, the share that is done runs high."""

PAGE_STREAMS = 500

PAUSE_S = 0.05

MAX_REMOVED = 100
"""Entries that a run removes, unless it is told otherwise. More damage than that has a cause to be found first."""


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """How a run is done.

    `deep` reads every byte. `repair` mends what has a repair, except that an entry whose object is damaged is removed,
    with a known gap in its place, only with `take_again`, and of `max_removed` entries at most. `resume`
    goes on with the pass that the last run left.
    """

    deep: bool = False
    repair: bool = False
    take_again: bool = False
    max_removed: int = MAX_REMOVED
    resume: bool = True


@dataclass(frozen=True, slots=True)
class Scrubber:
    """Scrubs one archive. `now` is AWS's clock; `pause` waits before a busy item is read again, given the attempt."""

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    now: Callable[[], TimestampMs]
    pause: Callable[[int], None] = lambda attempt: sleep(PAUSE_S * attempt)

    def run(
        self,
        only: Sequence[StreamId] | None,
        options: ScrubOptions,
        budget: Budget,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_fragments: Callable[[int], object] = lambda _: None,
        on_more: Callable[[Finding, bool], object] = lambda _, __: None,
    ) -> ScrubReport:
        """Scrub these streams, or all, until the pass is done or the budget is spent.

        The report has the first findings. `on_more` is given each other one, and whether it was mended.

        Raises UnavailableError and AccessDeniedError as the stores do; the position is saved before.
        """
        # Two requests for the position, which is read now and written in the end.
        meter = Meter(budget, reserved=2, should_stop=should_stop)
        name = cursor_name(only, deep=options.deep)
        saved = self.table.cursor(name) if options.resume else None
        position = None if saved is None else PassPosition.from_bytes(saved, source=name)
        if position is None or position.ended_at is not None:
            position = self._begin(only, options)
        found = RunFindings(on_more)
        work = _Run(self, ScrubReads(self.table, self.objects, meter, pause=self.pause), only, options, position, found)
        try:
            work.go(on_fragments)
        except BudgetSpentError:
            pass
        finally:
            self.table.put_cursor(name, work.position.to_bytes())
        return work.report(meter, work.at)

    def run_portion(
        self,
        only: Sequence[StreamId] | None,
        options: ScrubOptions,
        budget: Budget,
        position: PassPosition | None,
        *,
        before: Spent = Spent(0, 0, 0),  # noqa: B008  it is frozen
        should_stop: Callable[[], bool] = lambda: False,
        on_fragments: Callable[[int], object] = lambda _: None,
        on_more: Callable[[Finding, bool], object] = lambda _, __: None,
    ) -> ScrubReport:
        """Scrub as `run` does, from a position that the caller keeps; save none. The report has the next one.

        The streams must be those that the pass began with. `before` is what earlier portions have used of the budget,
        and the report's sums include it. If this raises, the portion is to be repeated.
        """
        meter = Meter(budget, before=before, should_stop=should_stop)
        found = RunFindings(on_more)
        reads = ScrubReads(self.table, self.objects, meter, pause=self.pause)
        work = _Run(self, reads, only, options, position or self._begin(only, options), found)
        with suppress(BudgetSpentError):
            work.go(on_fragments)
        return work.report(meter, work.at)

    def _begin(self, only: Sequence[StreamId] | None, options: ScrubOptions) -> PassPosition:
        incarnations = None if only is None else tuple(stream.incarnation for stream in only)
        return PassPosition(options.deep, self.now(), incarnations)

    def run_part(self, stream: StreamId, part: ScrubPart, options: ScrubOptions) -> ScrubReport:
        """Scrub a part of one stream, without a budget, and save no position: several processes share a stream so.

        The report's position has the account of the part. Raises as `run`.
        """
        meter = Meter(Budget())
        position = PassPosition(
            options.deep,
            self.now(),
            (stream.incarnation,),
            streams_total=1,
            stage=part.stages[0],
            reached=str(part.after),
            account=part.account,
        )
        reads = ScrubReads(self.table, self.objects, meter, pause=self.pause)
        work = _Run(self, reads, (stream,), options, position, RunFindings(), part)
        work.go_through(stream)
        return work.report(meter, stream.incarnation)


def cursor_name(only: Sequence[StreamId] | None, *, deep: bool) -> str:
    """Return the name of the cursor of a pass: each set of streams has its own, and so have deep passes."""
    name = "scrub-deep" if deep else "scrub"
    if only is None:
        return name
    return f"{name}-{sha256(' '.join(stream.incarnation for stream in only).encode()).hexdigest()[:16]}"


class _Run:
    """One run's state."""

    def __init__(  # noqa: PLR0917  what a run is made of
        self,
        scrubber: Scrubber,
        reads: ScrubReads,
        only: Sequence[StreamId] | None,
        options: ScrubOptions,
        position: PassPosition,
        found: RunFindings,
        part: ScrubPart = ScrubPart(),  # noqa: B008  it is frozen
    ) -> None:
        self._part = part
        self._scrubber = scrubber
        self._reads = reads
        self._only = only
        self._options = options
        self.position = position
        self.found = found
        self.notes: list[str] = []
        self._may_remove = options.max_removed if options.take_again else 0
        self.at: str | None = None

    def report(self, meter: Meter, at: str | None) -> ScrubReport:
        found = self.found
        return ScrubReport(
            tuple(found.findings),
            tuple(found.mended),
            found.counts,
            found.mended_counts,
            tuple(self.notes),
            meter.spent,
            self.position,
            at,
        )

    def go(self, on_fragments: Callable[[int], object]) -> None:
        if not self.position.streams_total:
            self.position = replace(self.position, streams_total=self._count())
        for stream in self._streams():
            self.at = stream.incarnation
            self.go_through(stream, on_fragments)
            after = registry_key(stream.vhost, stream.name, stream.incarnation)
            self._move(
                stage=Stage.BEGIN, reached="", account=None, after=after, streams_done=self.position.streams_done + 1
            )
        self.at = None
        if self._only is None:
            self._check_maps()
        self._move(ended_at=self._scrubber.now())

    def go_through(self, stream: StreamId, on_fragments: Callable[[int], object] = lambda _: None) -> None:
        """Examine one stream from where the position is."""
        for checked in self._examine(stream):
            on_fragments(checked)

    def _check_maps(self) -> None:
        """Check the shard maps, at the end of a pass over all streams."""
        scrubber = self._scrubber
        control = ControlObjects(scrubber.objects, scrubber.keys)
        after = self.position.reached
        for key, examiner in check_maps(self._reads, control, scrubber.now, after, repair=self._options.repair):
            self._take(examiner, key)

    def _count(self) -> int:
        if self._only is not None:
            return len(self._only)
        cursor, count = None, 0
        for _ in range(MAX_COUNTED_PAGES):
            page = self._reads.streams(cursor, PAGE_STREAMS)
            count, cursor = count + len(page.streams), page.cursor
            if cursor is None:
                break
        return count

    def _streams(self) -> Iterator[StreamId]:
        """Yield the streams from the one that the position is in."""
        if self._only is not None:
            yield from self._only[self.position.streams_done :]
            return
        cursor = self.position.after
        while True:
            page = self._reads.streams(cursor, PAGE_STREAMS)
            yield from page.streams
            cursor = page.cursor
            if cursor is None:
                return

    def _examine(self, stream: StreamId) -> Iterator[int]:
        """Examine a stream from where the position is; yield how many fragments were checked since the last time."""
        options = self._options
        control = ControlObjects(self._scrubber.objects, self._scrubber.keys)
        examiner = Examiner(
            self._reads,
            stream,
            self._scrubber.now,
            options.deep,
            options.repair,
            self._may_remove,
            lambda loss: self._reads.write(lambda: control.write_loss(stream.incarnation, loss)),
            self.found.findings,
        )
        try:
            yield from self._examine_with(examiner)
        finally:
            self.found.take(examiner.findings, examiner.mended)
            self.notes += sorted(examiner.notes)
            self._may_remove = examiner.take_again

    def _examine_with(self, examiner: Examiner) -> Iterator[int]:
        head = self._head(examiner)
        if head is None:
            return
        stages = self._part.stages
        for stage in stages[stages.index(self.position.stage) :]:
            self._move(stage=stage, reached=self.position.reached if stage is self.position.stage else "")
            try:
                for reached in self._stage(examiner, head, stage):
                    yield self._take(examiner, reached)
            except CorruptionError as err:
                # An item of the table: what is wrong with an object is caught where it is read.
                examiner.record(Trouble(Damage.ITEM, f"{stage}: {err}"))
            yield self._take(examiner, self.position.reached)

    def _head(self, examiner: Examiner) -> Head | None:
        try:
            head = self._reads.head(examiner.incarnation)
        except CorruptionError as err:
            examiner.record(Trouble(Damage.ITEM, f"head: {err}"))
            self._take(examiner, "")
            return None
        if head is None:
            if self._reads.is_headless(examiner.incarnation):
                examiner.record(Trouble(Damage.NO_HEAD, "the registry lists it, and it has no head"))
            self._take(examiner, "")
        return head

    def _stage(self, examiner: Examiner, head: Head, stage: Stage) -> Iterator[str]:  # noqa: C901, PLR0912  a case a stage
        reached = self.position.reached
        match stage:
            case Stage.BEGIN:
                if self._only is not None:
                    _check_registered(examiner, head)
                self._move(account=begin_account(examiner))
            case Stage.LOG:
                after = Offset(int(reached or 0))
                walk = LogWalk(examiner, head, self.position.account, after, until=self._part.until)
                for offset in walk.run():
                    self._move(account=walk.account)
                    yield str(offset)
            case Stage.TIMES:
                yield from map(str, check_times(examiner, self.position.account, Offset(int(reached or 0))))
            case Stage.GAPS:
                yield from map(str, check_gaps(examiner, Offset(int(reached or 0))))
            case Stage.TOMBSTONES:
                yield from check_tombstones(examiner, self._scrubber.keys, reached)
            case Stage.QUARANTINES:
                yield from check_quarantines(examiner, self._scrubber.keys, reached)
            case Stage.NOTES:
                control = ControlObjects(self._scrubber.objects, self._scrubber.keys)
                yield from check_notes(examiner, control, reached)
            case Stage.COUNTS:
                check_counts(examiner)
            case Stage.JOURNAL:
                yield from map(str, check_journal(examiner, head, int(reached or 0)))
            case Stage.TOTALS:
                check_totals(examiner, self.position.account)
            case Stage.REPLAY:
                if self._options.deep:
                    check_replay(examiner)

    def _take(self, examiner: Examiner, reached: str) -> int:
        """Add to the pass what was found up to a position; return how many fragments were checked.

        What comes after it is found again by the next run.
        """
        checked = examiner.fragments
        self.position = self.position.with_findings(
            examiner.findings,
            examiner.mended,
            fragments=examiner.fragments,
            unread=examiner.unread,
            unsettled=examiner.unsettled,
        )
        self._move(reached=reached)
        self.found.take(examiner.findings, examiner.mended)
        examiner.fragments = examiner.unread = examiner.unsettled = 0
        return checked

    def _move(self, **changes: object) -> None:
        self.position = replace(self.position, **changes)  # type: ignore[arg-type]  # named as the fields are


def _check_registered(examiner: Examiner, head: Head) -> None:
    """Check that the registry has the stream: its newest incarnation is this one, or a later one."""
    newest = examiner.reads.newest(examiner.stream)
    # The first change writes both; while it is being written, either may show first.
    if head.revision > 1 and (newest is None or newest < examiner.incarnation):
        examiner.record(Trouble(Damage.UNREGISTERED, f"the registry's newest incarnation is {newest}"))
