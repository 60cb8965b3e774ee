"""The jobs of an archive, in its manifest table: created, listed, steered.

Each write is conditional on the revision that was read, and is read and tried again if somebody else was faster. So a
worker's progress and a person's pause never overwrite each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from coldstream.errors import (
    CorruptionError,
    IdempotencyError,
    InvalidInputError,
    InvalidQueryError,
    JobNotFoundError,
    LostRaceError,
    OutcomeUnknownError,
)
from coldstream.jobs import changes
from coldstream.jobs.job import JOB_KEYS, JOBS, OPEN_JOBS, Job, JobState, new_id
from coldstream.jobs.log_lines import LogLine, delete_lines, items_of, read_lines
from coldstream.jobs.sealing import sealed
from coldstream.jobs.specs import JobKind, JobSpec, spec_to_dict
from coldstream.manifest.state_item import StateItem
from coldstream.retry import retrying
from coldstream.store.ports import ManifestTable
from coldstream.units import TimestampMs, now_ms

ATTEMPTS = 12
FIRST_DELAY_S = 0.02
MAX_DELAY_S = 1.0
MAX_PAGE_JOBS = 500
MAX_KEY = 255
MAX_SCANNED = 2000
"""Jobs that one page reads to find those of some state: a page may be short, and still have a cursor."""


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

    def create(self, spec: JobSpec, *, by: str = "", idempotency_key: str | None = None) -> Job:
        """Create a job; with a key that was given before, return the job of that time.

        Cost: one transaction. Raises IdempotencyError if the key was given for another spec; InvalidInputError.
        """
        return self.create_once(spec, by=by, idempotency_key=idempotency_key).job

    def create_once(self, spec: JobSpec, *, by: str = "", idempotency_key: str | None = None) -> CreatedJob:
        """Create a job as `create` does, and tell whether it is new."""
        now = self._now()
        job = Job(new_id(now), sealed(spec), now, by=by, changed_at=now)
        written = [StateItem(OPEN_JOBS, job.id, 1, b"")]
        if idempotency_key is not None:
            if not 1 <= len(idempotency_key) <= MAX_KEY:
                raise InvalidInputError(
                    "idempotency key", f"has {len(idempotency_key)} characters, of {MAX_KEY} at most"
                )
            job = replace(job, key_hash=sha256(idempotency_key.encode(errors="surrogatepass")).hexdigest())
            # The key goes into the digest: without it, whoever reads the item could guess what an erasure selects.
            text = idempotency_key + json.dumps(spec_to_dict(spec), sort_keys=True)
            digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
            content = json.dumps({"job": job.id, "spec": digest}).encode()
            written.append(StateItem(JOB_KEYS, job.key_hash, 1, content))
            earlier = self._of_key(job.key_hash, digest)
            if earlier is not None:
                return CreatedJob(earlier, is_new=False)
        job = replace(job, lines=1)
        written += [job.to_item(), *items_of(job.id, 0, [(now, f"created by {by or 'somebody'}")])]
        try:
            self._table.put_state(*written)
        except (LostRaceError, OutcomeUnknownError):
            made = self._table.state_item(JOBS, job.id)
            if made is not None:
                return CreatedJob(Job.from_item(made), is_new=True)
            earlier = self._of_key(job.key_hash, digest) if idempotency_key is not None else None
            if earlier is None:
                raise
            return CreatedJob(earlier, is_new=False)
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
        for number, item in enumerate(self._table.state_items(JOBS, after=cursor or "", page_items=limit + 1)):
            if len(found) == limit or number == MAX_SCANNED:
                return JobPage(tuple(found), last)
            job = Job.from_item(item)
            last = job.id
            if (not states or job.state in states) and (not kinds or job.kind in kinds):
                found.append(job)
        return JobPage(tuple(found), None)

    def open_jobs(self) -> Iterator[Job]:
        """Yield the jobs that have not ended, newest first. Cost: one Query a page, and one GetItem a job.

        Marks that an interrupted write left are removed on the way.
        """
        for mark in self._table.state_items(OPEN_JOBS):
            job = self.find(mark.key)
            if job is not None and not job.state.has_ended:
                yield job
            else:
                self._drop(mark)

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
        """Delete a job that has ended, and its log. Raises JobNotFoundError, JobStateError."""
        job = self.get(job_id)
        changes.check_deletable(job)
        delete_lines(self._table, job.id)
        if job.key_hash and (key := self._table.state_item(JOB_KEYS, job.key_hash)) is not None:
            self._drop(key)
        item = job.to_item()
        try:
            self._table.delete_state(StateItem(item.partition, item.key, job.revision, item.data))
        except LostRaceError:
            # It was resumed, or somebody else deletes it: then there is nothing left to say.
            if self.find(job_id) is not None:
                raise

    def log(self, job_id: str, *, after: int = -1) -> list[LogLine]:
        """Return the kept lines of a job's log past a number. Cost: a GetItem, one Query. Raises JobNotFoundError."""
        self.get(job_id)
        return read_lines(self._table, job_id, after=after)

    def update(self, job_id: str, change: Change, *, say: str = "") -> Job:
        """Change a job, whatever others write meanwhile, and write a line of its log with it.

        Cost: one GetItem and one PUT, or a transaction. Raises JobNotFoundError, and what `change` raises.
        """
        calls = retrying(LostRaceError, attempts=ATTEMPTS, first_delay_s=FIRST_DELAY_S, max_delay_s=MAX_DELAY_S)
        return calls(lambda: self._update(job_id, change, say))

    def _update(self, job_id: str, change: Change, say: str) -> Job:
        job = self.get(job_id)
        return self.write(job, change(job), [(self._now(), say)] if say else [])

    def write(self, before: Job, after: Job, lines: list[tuple[TimestampMs, str]]) -> Job:
        """Write what became of a job over exactly what was read, with lines of its log.

        Cost: one PUT, or a transaction. Raises LostRaceError if it has changed since it was read.
        """
        after = replace(after, revision=before.revision, lines=before.lines + len(lines))
        written = [after.to_item(), *items_of(after.id, before.lines, lines)]
        if before.state.has_ended and not after.state.has_ended:
            mark = self._table.state_item(OPEN_JOBS, after.id)
            # Whoever removes the mark of an ended job removes the one that it read: this is a later one.
            written.append(StateItem(OPEN_JOBS, after.id, 1 if mark is None else mark.revision + 1, b""))
        try:
            self._table.put_state(*written)
        except OutcomeUnknownError:
            there = self._table.state_item(JOBS, after.id)
            if there is None or there != written[0]:
                raise LostRaceError(f"job {after.id}: no answer came, and what is there is another") from None
        if after.state.has_ended and (mark := self._table.state_item(OPEN_JOBS, after.id)) is not None:
            self._drop(mark)
        return replace(after, revision=before.revision + 1)

    def _of_key(self, key_hash: str, digest: str) -> Job | None:
        item = self._table.state_item(JOB_KEYS, key_hash)
        if item is None:
            return None
        try:
            content = json.loads(item.data)
            job_id, spec = str(content["job"]), content["spec"]
        except (ValueError, TypeError, KeyError) as err:
            raise CorruptionError(f"state item {JOB_KEYS} {item.key}", 0, f"malformed: {err}") from err
        if spec != digest:
            raise IdempotencyError(job_id)
        return self.get(job_id)

    def _drop(self, item: StateItem) -> None:
        try:
            self._table.delete_state(item)
        except LostRaceError:
            return  # it was renewed, or removed by another: both are as well


def _told(what: str, by: str) -> str:
    return f"{what}, by {by}" if by else what
