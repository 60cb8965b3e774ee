"""The jobs of an archive, in its manifest table: created, listed, steered.

Each write is conditional on the revision that was read, and is read and tried again if somebody else was faster. So a
worker's progress and a person's pause never overwrite each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import takewhile
from typing import Any

from coldstream.errors import (
    ColdstreamError,
    CorruptionError,
    IdempotencyError,
    InvalidInputError,
    InvalidQueryError,
    JobNotFoundError,
    LostRaceError,
    OutcomeUnknownError,
)
from coldstream.jobs import changes
from coldstream.jobs.job import JOB_KEYS, JOBS, MAX_BY_BYTES, OPEN_JOBS, Job, JobState, new_id
from coldstream.jobs.log_lines import LogLine, delete_lines, items_of, read_lines
from coldstream.jobs.open_marks import is_of_now, is_over, mark_of, marked_job
from coldstream.jobs.schedule import Schedule
from coldstream.jobs.sealing import sealed
from coldstream.jobs.short_text import short_text
from coldstream.jobs.specs import JobKind, JobSpec, spec_to_dict
from coldstream.manifest.state_item import StateItem
from coldstream.plain_json import read_json
from coldstream.retry import retrying
from coldstream.store.ports import ManifestTable
from coldstream.units import TimestampMs, now_ms

ATTEMPTS = 12
FIRST_DELAY_S = 0.02
MAX_DELAY_S = 1.0
MAX_PAGE_JOBS = 500
FILTERED_ITEMS = 250
MAX_KEY = 255
MAX_SCANNED = 2000
"""Jobs that one page reads to find those of some state: a page may be short, and still have a cursor."""

_FREED = ""
"""In place of a digest: another job may have the key, as this one is being deleted."""

_retrying = partial(retrying, attempts=ATTEMPTS, first_delay_s=FIRST_DELAY_S, max_delay_s=MAX_DELAY_S)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs, newest first; `cursor` continues after them, None if there are no more."""

    jobs: tuple[Job, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class CreatedJob:
    """A job that was created; `is_new` is False if that was an earlier request with the same idempotency key."""

    job: Job
    is_new: bool


Change = Callable[[Job], Job]
"""Returns what becomes of a job. It may be called again with a later state of it."""


class JobStore:
    """The jobs in a manifest table. Its methods block, and raise UnavailableError if the table does not answer."""

    def __init__(self, table: ManifestTable, now: Callable[[], TimestampMs] = now_ms) -> None:
        self._table = table
        self._now = now

    def now(self) -> TimestampMs:
        """Return the time by the clock of this store: that by which jobs are due."""
        return self._now()

    def create(self, spec: JobSpec, *, by: str = "", idempotency_key: str | None = None) -> Job:
        """Create a job; with a key that was given before, return the job of that time.

        Cost: one transaction. Raises IdempotencyError if the key was given for another spec; InvalidInputError.
        """
        return self.create_once(spec, by=by, idempotency_key=idempotency_key).job

    def create_once(self, spec: JobSpec, *, by: str = "", idempotency_key: str | None = None) -> CreatedJob:
        """Create a job as `create` does, and tell whether it is new."""
        now = self._now()
        job = Job(new_id(now), sealed(spec), now, by=short_text(by, MAX_BY_BYTES), changed_at=now)
        if spec.schedule is not None and (first := Schedule.parse(spec.schedule).first_after(now)) > now:
            job = replace(job, state=JobState.WAITING, next_at=first)
        written, digest = [mark_of(job)], ""
        if idempotency_key is not None:
            if not 1 <= len(idempotency_key) <= MAX_KEY:
                raise InvalidInputError(
                    "idempotency key", f"has {len(idempotency_key)} characters, of {MAX_KEY} at most"
                )
            job = replace(job, key_hash=sha256(idempotency_key.encode(errors="surrogatepass")).hexdigest())
            # The key goes into the digest: without it, whoever reads the item could guess what an erasure selects.
            text = idempotency_key + json.dumps(spec_to_dict(spec), sort_keys=True)
            digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
        job = replace(job, lines=1)
        written += [job.to_item(), *items_of(job.id, 0, [(now, f"created by {by or 'somebody'}")])]
        # All of it is new, so writing it again does no harm, whatever became of the first time.
        calls = _retrying((LostRaceError, OutcomeUnknownError))
        return calls(lambda: self._create(job, written, digest))

    def _create(self, job: Job, written: Sequence[StateItem], digest: str) -> CreatedJob:
        key = self._table.state_item(JOB_KEYS, job.key_hash) if job.key_hash else None
        if (earlier := self._of_key(key, digest)) is not None:
            return CreatedJob(earlier, is_new=earlier.id == job.id)
        if job.key_hash:
            revision = key.revision if key is not None and _is_freed(key) else 0
            written = [*written, _key_item(job, digest, revision)]
        try:
            self._table.put_state(*written)
        except (LostRaceError, OutcomeUnknownError):
            made = self.find(job.id)
            if made is None:
                raise
            return CreatedJob(made, is_new=True)
        return CreatedJob(replace(job, revision=1), is_new=True)

    def get(self, job_id: str) -> Job:
        """Return a job. Cost: one GetItem. Raises JobNotFoundError."""
        job = self.find(job_id)
        if job is None:
            raise JobNotFoundError(job_id)
        return job

    def find(self, job_id: str) -> Job | None:
        """Return a job, None if there is none. Cost: one GetItem."""
        if not job_id.isascii() or not job_id.isprintable() or not 1 <= len(job_id) <= MAX_KEY:
            return None
        item = self._table.state_item(JOBS, job_id)
        return None if item is None else Job.from_item(item)

    def page(
        self,
        cursor: str | None = None,
        limit: int = 100,
        *,
        states: Collection[JobState] = (),
        kinds: Collection[JobKind] = (),
    ) -> JobPage:
        """Return the next jobs, newest first, of these states and kinds, or of all. Cost: one Query, or a few.

        A page may be short, or empty, and have a cursor. Raises InvalidQueryError.
        """
        if not 1 <= limit <= MAX_PAGE_JOBS:
            raise InvalidQueryError("limit", f"is not from 1 to {MAX_PAGE_JOBS}")
        if cursor is not None and not (cursor.isascii() and cursor.isprintable() and 1 <= len(cursor) <= MAX_KEY):
            raise InvalidQueryError("cursor", "is none that a page of jobs had")
        found: list[Job] = []
        last = None
        # Of a filtered page most jobs may be others: a Query for each two of them would be a thousand.
        page_items = max(limit + 1, FILTERED_ITEMS) if states or kinds else limit + 1
        for number, item in enumerate(self._table.state_items(JOBS, after=cursor or "", page_items=page_items)):
            if len(found) == limit or number == MAX_SCANNED:
                return JobPage(tuple(found), last)
            job = Job.from_item(item)
            last = job.id
            if (not states or job.state in states) and (not kinds or job.kind in kinds):
                found.append(job)
        return JobPage(tuple(found), None)

    def open_jobs(self, on_unreadable: Callable[[CorruptionError], None] | None = None) -> Iterator[Job]:
        """Yield the jobs that have not ended, newest first. Cost: one Query a page, and one GetItem a job.

        Marks that an interrupted write left are removed on the way. A job that cannot be read is told, and the others
        follow; without `on_unreadable` it raises CorruptionError.
        """
        for mark in self._table.state_items(OPEN_JOBS):
            try:
                job = self.find(marked_job(mark))
            except CorruptionError as err:
                if on_unreadable is None:
                    raise
                on_unreadable(err)
                continue
            if job is None:
                continue  # it is just being created: `delete` removes a job's marks before the job
            if is_of_now(mark, job):
                yield job
            elif is_over(mark, job):
                self._try_drop(mark)

    def pause(self, job_id: str, *, by: str = "") -> Job:
        """Pause a job, or ask its worker to. Raises JobNotFoundError, JobStateError."""
        return self.update(job_id, lambda job: changes.paused(job, self._now()), say=_told("pause", by))

    def resume(self, job_id: str, *, by: str = "") -> Job:
        """Let a paused job go on, or try a failed one again. Raises JobNotFoundError, JobStateError."""
        return self.update(job_id, lambda job: changes.resumed(job, self._now()), say=_told("resume", by))

    def cancel(self, job_id: str, *, by: str = "") -> Job:
        """Cancel a job, or ask its worker to. Raises JobNotFoundError, JobStateError."""
        return self.update(job_id, lambda job: changes.cancelled(job, self._now()), say=_told("cancel", by))

    def edit(self, job_id: str, fields: Mapping[str, Any], *, by: str = "") -> Job:
        """Change some fields of a job's spec. Raises JobNotFoundError, JobStateError, InvalidInputError."""
        text = ", ".join(f"{name} {value}" for name, value in fields.items())
        return self.update(
            job_id, lambda job: changes.changed(job, fields, self._now()), say=_told(f"edit: {text}"[:500], by)
        )

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended, its key and its log. Raises JobNotFoundError, JobStateError.

        One that was interrupted is finished by the next call. Cost: a GetItem, up to two Queries, and a DELETE an item;
        with a key, a GetItem and a transaction more.
        """
        was_there = _retrying(LostRaceError)(lambda: self._delete(job_id))
        # After the job: one that is tried again meanwhile keeps its lines, over which the next ones are written.
        if not delete_lines(self._table, job_id) and not was_there:
            raise JobNotFoundError(job_id)

    def _delete(self, job_id: str) -> bool:
        job = self.find(job_id)
        if job is None:
            return False
        changes.check_deletable(job)
        # Marks and key before the job: without a job nobody can tell any more that they are left over.
        marks = self._table.state_items(OPEN_JOBS, after=job.id, page_items=10)
        for mark in takewhile(lambda mark: marked_job(mark) == job.id, marks):
            if is_over(mark, job):
                self._drop(mark)
        freed = self._free_key(job)
        self._table.delete_state(replace(freed.to_item(), revision=freed.revision))
        return True

    def _free_key(self, job: Job) -> Job:
        """Free the key of a job that is being deleted, and return the job.

        In one transaction with the job: whoever read both before another one freed the key, when it may be of a new
        job already, must not free it again. A freed item is at a revision at which nothing else ever is.
        """
        key = self._table.state_item(JOB_KEYS, job.key_hash) if job.key_hash else None
        if key is None or _content_of_key(key)[0] != job.id:
            return job  # it was freed before
        if not _is_freed(key):
            key = _key_item(job, _FREED, key.revision)
            self._table.put_state(key, job.to_item())
            job = replace(job, revision=job.revision + 1)
        self._drop(key)
        return job

    def log(self, job_id: str, *, after: int = -1) -> list[LogLine]:
        """Return the kept lines of a job's log past a number. Cost: a GetItem, one Query. Raises JobNotFoundError."""
        self.get(job_id)
        return read_lines(self._table, job_id, after=after)

    def update(self, job_id: str, change: Change, *, say: str = "") -> Job:
        """Change a job, whatever others write meanwhile, and write a line of its log with it.

        Cost: one GetItem and one PUT, or a transaction. Raises JobNotFoundError, OutcomeUnknownError, and what `change`
        raises.
        """
        return _retrying((LostRaceError, OutcomeUnknownError))(lambda: self._update(job_id, change, say))

    def _update(self, job_id: str, change: Change, say: str) -> Job:
        job = self.get(job_id)
        return self.write(job, change(job), [(self._now(), say)] if say else [])

    def write(self, before: Job, after: Job, lines: list[tuple[TimestampMs, str]]) -> Job:
        """Write what became of a job over exactly what was read, with lines of its log.

        Cost: one PUT, or a transaction. Raises LostRaceError if it has changed since it was read; OutcomeUnknownError
        if no answer came, and it has not changed so far.
        """
        opens = before.state.has_ended and not after.state.has_ended
        after = replace(
            after,
            revision=before.revision,
            lines=before.lines + len(lines),
            openings=before.openings + opens,
        )
        written = [after.to_item(), *items_of(after.id, before.lines, lines), *([mark_of(after)] if opens else [])]
        try:
            self._table.put_state(*written)
        except OutcomeUnknownError:
            there = self._table.state_item(JOBS, after.id)
            if there is not None and there.revision == before.revision:
                raise
            if there != written[0]:
                raise LostRaceError(f"job {after.id}: no answer came, and what is there is another") from None
        if after.state.has_ended:
            self._try_drop(mark_of(after))
        return replace(after, revision=before.revision + 1)

    def _of_key(self, key: StateItem | None, digest: str) -> Job | None:
        """Return the job that has a key, None if there is none, or it does not show yet."""
        if key is None or _is_freed(key):
            return None
        job_id, spec = _content_of_key(key)
        if spec != digest:
            raise IdempotencyError(job_id)
        return self.find(job_id)

    def _drop(self, item: StateItem) -> None:
        try:
            self._table.delete_state(item)
        except LostRaceError:
            return  # it was renewed, or removed by another: both are as well

    def _try_drop(self, mark: StateItem) -> None:
        with suppress(ColdstreamError):  # it does no harm, and whoever looks for work next removes it
            self._table.delete_state(mark)


def _key_item(job: Job, digest: str, revision: int) -> StateItem:
    """Return the item of a job's key, over a revision."""
    content = json.dumps({"job": job.id, "spec": digest}).encode()
    return StateItem(JOB_KEYS, job.key_hash, revision + 1, content)


def _is_freed(key: StateItem) -> bool:
    return _content_of_key(key)[1] == _FREED


def _content_of_key(item: StateItem) -> tuple[str, str]:
    """Return the id of the job that was created with a key, and the digest of what it was to be."""
    try:
        content = read_json(item.data)
        return str(content["job"]), str(content["spec"])
    except (ValueError, TypeError, KeyError) as err:
        raise CorruptionError(f"state item {JOB_KEYS} {item.key}", 0, f"malformed: {err}") from err


def _told(what: str, by: str) -> str:
    return f"{what}, by {by}" if by else what
