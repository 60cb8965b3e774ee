"""A job: what it is to do, in which state it is, who has it, and how far it is. One item of the manifest table.

    #jobs         {id}             the job, JSON as below; its revision is the item's
    #open-jobs    {id}#{opening}   a mark of each job that has not ended: workers look for work here (`open_marks`)
    #job-keys     {sha256 of key}  an idempotency key, and the job that was created with it
    #job-log#…    {number % 1000}  the last lines of a job's log (`log_lines`)

Ids begin with the time that is left until the year 5138, so newer jobs come first.

States:

    created ──▶ running ──▶ succeeded | failed | cancelled
                 │   ▲
                 ▼   │
          waiting | paused

`waiting` is until `next_at`: for the next attempt, the next poll or the next run of a schedule.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Self

from coldstream.errors import BadVersionError, CorruptionError, InvalidInputError
from coldstream.jobs.short_text import short_text
from coldstream.jobs.specs import JobKind, JobSpec, parse_spec, spec_to_dict
from coldstream.manifest.state_item import StateItem
from coldstream.plain_json import read_json
from coldstream.units import TimestampMs

JOBS = "#jobs"
OPEN_JOBS = "#open-jobs"
JOB_KEYS = "#job-keys"
VERSION = 1

# With the spec (MAX_SPEC_BYTES) and the reason, these stay below what an item holds: a job that could not be written
# could not even end.
MAX_CURSOR_BYTES = 100_000
MAX_NAMED_BYTES = 2000
MAX_BY_BYTES = 2000
MAX_NAMED = 20
"""So many of the skipped are named; the rest is counted."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LAST_MS = 10**14 - 1
_TIME_DIGITS = 10


class JobState(StrEnum):
    """Where a job is in its life."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether no worker touches the job any more."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


class Wish(StrEnum):
    """What somebody asked of a running job. It is done at the job's next safe place."""

    PAUSE = "pause"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who runs a job.

    `beat` begins anywhere and rises with each write; a lease that stands still for `length_ms` is over. `until` is when
    that is by the worker's own clock: for people to see, never for a decision of another worker.
    """

    worker: str
    length_ms: int
    beat: int
    until: TimestampMs


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far the present run is: `done` of `total` in `unit`, None if nobody knows how much it is.

    `messages` and `bytes` are what it has dealt with, `failures` what failed and was tried again. `lag_ms` is how far a
    job that goes on is behind.
    """

    done: int = 0
    total: int | None = None
    unit: str = "offsets"
    messages: int = 0
    bytes: int = 0
    failures: int = 0
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """What the present run left out: how many of its unit, the first few by name and reason, and how many others."""

    count: int = 0
    named: tuple[str, ...] = ()
    others: int = 0

    def plus(self, what: str, count: int, reason: str) -> Skipped:
        """Add something that was left out. What is named already is not counted again."""
        text = short_text(f"{what}: {reason}"[:500], MAX_NAMED_BYTES)
        if text in self.named:
            return self
        if len(self.named) == MAX_NAMED:
            return Skipped(self.count + count, self.named, self.others + 1)
        return Skipped(self.count + count, (*self.named, text), self.others)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was read at `revision`.

    `epoch` rises with each worker that takes it. `attempts` are those of this run without progress, `runs` and
    `failed_runs` those of a schedule that have ended. `run_began_at` is the time that relative times of this run mean.
    `runner_state` is what another service says of it, such as EMR. `lines` counts the lines of its log, `openings` how
    often it was created or tried again after it had ended.
    """

    id: str
    spec: JobSpec
    created_at: TimestampMs
    by: str = ""
    state: JobState = JobState.CREATED
    wish: Wish | None = None
    epoch: int = 0
    lease: Lease | None = None
    cursor: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    progress: JobProgress = field(default_factory=JobProgress)
    skipped: Skipped = field(default_factory=Skipped)
    attempts: int = 0
    runs: int = 0
    failed_runs: int = 0
    reason: str = ""
    changed_at: TimestampMs = TimestampMs(0)  # noqa: RUF009  a NewType is its value
    run_began_at: TimestampMs | None = None
    ended_at: TimestampMs | None = None
    next_at: TimestampMs | None = None
    runner_state: str = ""
    key_hash: str = ""
    lines: int = 0
    openings: int = 1
    revision: int = 0

    @property
    def kind(self) -> JobKind:
        """What the job does."""
        return self.spec.kind

    def is_due(self, now: TimestampMs) -> bool:
        """Whether a worker may take it, unless another one has it."""
        if self.state is JobState.CREATED:
            return True
        return self.state is JobState.WAITING and (self.next_at is None or self.next_at <= now)

    def to_dict(self) -> dict[str, Any]:
        """Return the job for JSON, without its revision."""
        found = {name: getattr(self, name) for name in _PLAIN}
        found |= {"version": VERSION, "spec": spec_to_dict(self.spec), "state": self.state.value}
        found |= {"wish": None if self.wish is None else self.wish.value, "cursor": dict(self.cursor)}
        found |= {"lease": None if self.lease is None else asdict(self.lease)}
        return found | {"progress": asdict(self.progress), "skipped": asdict(self.skipped)}

    def to_item(self) -> StateItem:
        """Encode it over the revision that it was read at. Raises InvalidInputError for a cursor that is too large."""
        check_cursor(self.cursor)
        return StateItem(JOBS, self.id, self.revision + 1, json.dumps(self.to_dict(), separators=(",", ":")).encode())

    @classmethod
    def from_item(cls, item: StateItem) -> Self:
        """Decode it. Raises CorruptionError; BadVersionError if a later release wrote it."""
        source = f"state item {item.partition} {item.key}"
        try:
            found = read_json(item.data)
            if found["version"] != VERSION:
                raise BadVersionError(source, 0, "version", expected=VERSION, found=found["version"])
            skipped = found["skipped"]
            return cls(
                spec=parse_spec(found["spec"]),
                state=JobState(found["state"]),
                wish=None if found["wish"] is None else Wish(found["wish"]),
                lease=None if found["lease"] is None else Lease(**found["lease"]),
                cursor=MappingProxyType(found["cursor"]),
                progress=JobProgress(**found["progress"]),
                skipped=Skipped(skipped["count"], tuple(skipped["named"]), skipped["others"]),
                revision=item.revision,
                **{name: found[name] for name in _PLAIN},
            )
        except (ValueError, TypeError, KeyError, InvalidInputError) as err:
            raise CorruptionError(source, 0, f"malformed: {err}") from err


_PLAIN = (
    *("id", "created_at", "by", "epoch", "attempts", "runs", "failed_runs", "reason", "changed_at", "run_began_at"),
    *("ended_at", "next_at", "runner_state", "key_hash", "lines", "openings"),
)
"""The fields that JSON has as they are."""


def check_cursor(cursor: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of a cursor as it is read back. Raises InvalidInputError if it is too large or no JSON."""
    try:
        text = json.dumps(dict(cursor), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as err:
        raise InvalidInputError("cursor", f"is not JSON: {err}") from err
    if len(text) > MAX_CURSOR_BYTES:
        raise InvalidInputError("cursor", f"has {len(text)} bytes, of {MAX_CURSOR_BYTES} at most")
    return MappingProxyType(json.loads(text))


def new_id(now: TimestampMs) -> str:
    """Return an id that no other job has; a later one sorts before it."""
    left, digits = _LAST_MS - now, ""
    for _ in range(_TIME_DIGITS):
        left, digit = divmod(left, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return f"{digits}-{''.join(secrets.choice(_ALPHABET) for _ in range(6))}"
