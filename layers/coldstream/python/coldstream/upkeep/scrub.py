"""The kind `scrub`: table against bucket against bytes, in portions, after each of which the run can go on.

A job about named streams makes a pass over each; one about all makes a single pass over the archive, which also checks
the maps of sharded streams. The position of a pass is in the job's cursor, and counts what was found and what was
mended up to there. So a portion that is repeated, because its worker died, is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from coldstream.errors import BudgetError, DamageError
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd, WaitsUntil
from coldstream.jobs.schedule import Schedule
from coldstream.jobs.specs import ScrubSpec
from coldstream.manifest.stream import StreamId
from coldstream.scrub.budget import Budget, Spent
from coldstream.scrub.catalogue import CATALOGUE
from coldstream.scrub.damage import Damage, Finding
from coldstream.scrub.position import PassPosition
from coldstream.scrub.report import ScrubReport
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.units import parse_size
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.choice import StreamChoice, key_of
from coldstream.upkeep.survey import Survey, survey

PORTION_REQUESTS = 500
"""Requests from one position to the next. A fragment that takes more is given twice as many, and so on."""

AFTER_ALL = "~"
"""Sorts after the key of every stream."""

TOLD = 20
"""Damages of a portion that the job's log names; the others are counted."""


def run_scrub(run: JobRun, archive: UpkeepArchive) -> RunEnd:
    """Scrub the streams of a job, or all. Raises DamageError at the end if damages are left, and BudgetError.

    One with a schedule that has used up its budget goes on at the next time of the schedule.
    """
    spec = run.spec
    assert isinstance(spec, ScrubSpec)
    choice = StreamChoice.find(archive.stores.table, spec)
    work = _JobScrub(run, archive, spec, ScrubProgress.of(run))
    if not run.cursor:
        work.begin(survey(archive.stores.table, choice))
    end = work.scrub_all() if choice.is_every else work.scrub_each(choice)
    return end if end is not None else work.end(choice)


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """What a run has come to: all that its cursor keeps.

    `after` is the last stream that is done, `position` that of the pass under way. `found`, `mended`, `unread`,
    `unsettled` and `fragments` are of the passes that are done. `requests` and `read_bytes` are of the
    budget. `todo` is what to do about the worst damage so far, of `severity`.
    """

    unit: str = "streams"
    after: str | None = None
    passed: int = 0
    position: PassPosition | None = None
    found: Mapping[str, int] | None = None
    mended: Mapping[str, int] | None = None
    unread: int = 0
    unsettled: int = 0
    fragments: int = 0
    requests: int = 0
    read_bytes: int = 0
    severity: int = 0
    todo: str = ""

    @classmethod
    def of(cls, run: JobRun) -> Self:
        """Read the cursor of a run."""
        cursor = dict(run.cursor)
        position = cursor.pop("position", None)
        if position is not None:
            position = PassPosition.from_bytes(position.encode(), source=f"cursor of job {run.job.id}")
        return cls(**cursor, position=position)

    def to_cursor(self) -> dict[str, Any]:
        """Return the cursor; the inverse of `of`. A position keeps no findings in words: the job's log has them."""
        position = None if self.position is None else replace(self.position, findings=())
        values = {name: getattr(self, name) for name in type(self).__slots__}
        return values | {"position": None if position is None else position.to_bytes().decode()}

    def with_portion(self, report: ScrubReport, todo: tuple[int, str], after: str) -> Self:
        """Add a portion; at the end of its pass, add the pass, which leads to `after`."""
        spent = replace(
            self,
            requests=report.spent.requests,
            read_bytes=report.spent.data_bytes,
            severity=max(self.severity, todo[0]),
            todo=todo[1] if todo[0] > self.severity else self.todo,
        )
        position = report.position
        if not report.is_complete:
            return replace(spent, position=position)
        return replace(
            spent,
            position=None,
            after=after,
            passed=self.passed + position.streams_done,
            found=_sum(self.found, position.counts),
            mended=_sum(self.mended, position.mended),
            unread=self.unread + position.unread,
            unsettled=self.unsettled + position.unsettled,
            fragments=self.fragments + position.fragments,
        )

    @property
    def all_fragments(self) -> int:
        """How many fragments were checked, those of the pass under way included."""
        return self.fragments + (0 if self.position is None else self.position.fragments)

    def left(self) -> dict[str, int]:
        """Return the damages that were found and not mended, by kind."""
        mended = self.mended or {}
        left = {kind: count - mended.get(kind, 0) for kind, count in (self.found or {}).items()}
        return {kind: count for kind, count in left.items() if count > 0}


def _sum(one: Mapping[str, int] | None, other: Mapping[Any, int]) -> dict[str, int]:
    total = Counter(one or {})
    for kind, count in other.items():
        total[str(kind)] += count
    return dict(total)


class _Portion:
    """Tells when a portion ends, and remembers why: its requests are used up, the run is to stop, or neither."""

    def __init__(self, should_stop: Callable[[], bool], requests: int) -> None:
        self._should_stop = should_stop
        self._left = requests
        self.is_used_up = False
        self.is_stopped = False

    def __call__(self) -> bool:
        self._left -= 1
        self.is_stopped = self.is_stopped or self._should_stop()
        self.is_used_up = self.is_used_up or self._left < 0
        return self.is_stopped or self.is_used_up


class _JobScrub:
    """One attempt of a scrub."""

    def __init__(self, run: JobRun, archive: UpkeepArchive, spec: ScrubSpec, progress: ScrubProgress) -> None:
        self._run = run
        self._archive = archive
        self._spec = spec
        self._progress = progress
        stores = archive.stores
        self._scrubber = Scrubber(stores.table, stores.objects, stores.keys, stores.now)
        self._options = ScrubOptions(deep=spec.deep, repair=spec.repair)
        self._told_bytes = progress.read_bytes
        self._budget = Budget(spec.max_requests, parse_size(spec.max_read))

    def begin(self, found: Survey) -> None:
        """Tell how much there is, at the beginning of a run."""
        self._progress = ScrubProgress(unit="fragments" if found.is_complete else "streams")
        total = found.fragments if found.is_complete else found.streams
        self._run.advance(cursor=self._progress.to_cursor(), done=0, total=total, unit=self._progress.unit)

    def scrub_each(self, choice: StreamChoice) -> RunEnd | None:
        """Make a pass over each stream; return None if all are done."""
        for stream in choice.iter(self._archive.stores.table, self._progress.after):
            if (end := self._scrub([stream], key_of(stream))) is not None:
                return end
        return None

    def scrub_all(self) -> RunEnd | None:
        """Make a pass over the archive; return None if it is done."""
        return None if self._progress.after == AFTER_ALL else self._scrub(None, AFTER_ALL)

    def _scrub(self, only: Sequence[StreamId] | None, after: str) -> RunEnd | None:
        """Make a pass, or the rest of one, which leads to a place among the streams; return None if it is done."""
        requests = PORTION_REQUESTS
        while True:
            if self._run.should_stop():
                return Interrupted()
            portion, before = _Portion(self._run.should_stop, requests), self._progress
            report = self._scrubber.run_portion(
                only,
                self._options,
                self._budget,
                before.position,
                before=Spent(before.requests, before.read_bytes, 0),
                should_stop=portion,
            )
            self._progress = before.with_portion(report, self._say(report), after)
            is_further = report.is_complete or self._progress.position != before.position
            if is_further:
                # Else nothing is: what was only read is no progress, and is read again.
                self._tell()
            if report.is_complete:
                return None
            if portion.is_stopped:
                return Interrupted()
            if not portion.is_used_up:
                return self._spent_budget()
            # Without a new position, what is next takes more requests than a portion has.
            requests = PORTION_REQUESTS if is_further else requests * 2

    def end(self, choice: StreamChoice) -> RunEnd:
        """End a run that has been through all. Raises DamageError."""
        for name, reason in choice.missing:
            self._run.skip(f"stream {name!r}", 1, reason)
        for pattern in choice.unmatched(self._archive.stores.table):
            self._run.skip(f"pattern {pattern!r}", 1, f"no stream in vhost {choice.vhost!r} matches")
        progress = self._progress
        if progress.unread:
            why = "they are in a cold storage class, or too large for the budget"
            self._run.skip(f"{progress.unread} objects, which were not read to the end", progress.unread, why)
        if progress.unsettled:
            why = "others changed them each time they were looked at"
            self._run.skip(f"{progress.unsettled} items", progress.unsettled, why)
        left = progress.left()
        if not self._archive.may_sweep and (overdue := left.pop(Damage.TOMBSTONE_OVERDUE, 0)):
            self._run.say(f"{overdue} objects wait for a sweep, and none runs by itself")
        if left:
            # Whoever resumes the job wants to know whether it is mended by now.
            self._run.advance(cursor={})
            raise DamageError(left, progress.todo)
        total = self._run.progress.total
        self._run.advance(done=self._run.progress.done if total is None else total)
        mended = sum((progress.mended or {}).values())
        return Finished(f"{progress.fragments} fragments checked, {mended} damages mended")

    def _spent_budget(self) -> RunEnd:
        progress = self._progress
        told = f"{progress.requests} requests and {progress.read_bytes} bytes, the budget of a run, are used up"
        # What comes next has the whole budget again.
        self._tell()
        self._progress, self._told_bytes = replace(progress, requests=0, read_bytes=0), 0
        self._tell()
        if self._spec.schedule is None:
            raise BudgetError(f"{told}, and {progress.all_fragments} fragments are checked: resume the job to go on")
        now = self._archive.stores.now()
        return WaitsUntil(
            Schedule.parse(self._spec.schedule).next_after(self._run.began_at, now), f"{told}; goes on then"
        )

    def _tell(self) -> None:
        progress, read_bytes = self._progress, self._progress.read_bytes - self._told_bytes
        self._told_bytes = progress.read_bytes
        done = progress.all_fragments
        if progress.unit == "streams":
            done = progress.passed + (0 if progress.position is None else progress.position.streams_done)
        total = self._run.progress.total
        self._run.advance(
            cursor=progress.to_cursor(), done=done if total is None else min(done, total), bytes_=read_bytes
        )

    def _say(self, report: ScrubReport) -> tuple[int, str]:
        """Name the first damages of a portion in the log; return the severity of the worst left, and what to do."""
        worst = (0, "")
        for number, finding in enumerate(report.findings):
            is_mended = finding in report.mended
            if number < TOLD:
                self._run.say(_line(finding, is_mended=is_mended))
            kind = CATALOGUE[finding.damage]
            if not is_mended and kind.severity > worst[0]:
                worst = (int(kind.severity), kind.command.replace("NAME", finding.stream.name))
        if report.found > TOLD:
            self._run.say(f"and {report.found - TOLD} more damages; a scrub by the command names all")
        for note in report.notes:
            self._run.say(note)
        return worst


def _line(finding: Finding, *, is_mended: bool) -> str:
    command = CATALOGUE[finding.damage].command.replace("NAME", finding.stream.name)
    return f"mended: {finding}" if is_mended else f"damaged: {finding}; what to do: {command}"
