"""The bodies of answers about jobs. What creates and edits jobs are the models of `jobs.specs`."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field

from coldstream.jobs.job import Job, JobState, Wish
from coldstream.jobs.log_lines import LogLine
from coldstream.jobs.preview import JobPreview
from coldstream.jobs.preview_warning import WarningCode
from coldstream.jobs.public import public_job, public_line
from coldstream.jobs.specs import JobKind
from coldstream.jobs.store import JobPage
from coldstream.resolve.api import ApiBody, Count, OffsetNumber, TimestampNumber

Dollars = Annotated[float, Field(ge=0, description="About, in US dollars, by list prices")]


class StrictBody(ApiBody):
    """A body whose fields are all described."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProgressBody(StrictBody):
    """How far the present run is."""

    done: Count = Field(description="In `unit`")
    total: Count | None = Field(description="How much it is, in `unit`; null if nobody knows")
    unit: str
    messages: Count = Field(description="Messages that it has dealt with")
    bytes: Count = Field(description="Bytes that it has dealt with")
    failures: Count = Field(description="What failed and was tried again")
    lag_ms: Count | None = Field(description="How far a job that goes on is behind; null if that means nothing")


class SkippedBody(StrictBody):
    """What the present run left out. It fails the job, unless `allow_skipped`."""

    count: Count = Field(description="How many, in the unit of the progress")
    named: list[str] = Field(description="The first of them, each with its reason")
    others: Count = Field(description="How many more there are than those named")


class WorkerBody(StrictBody):
    """Who runs the job now."""

    name: str
    until: TimestampNumber = Field(description="When its lease ends unless it is renewed, ms since 1970")


class JobBody(StrictBody):
    """A job."""

    id: str
    kind: JobKind
    name: str = Field(description="What people call it")
    state: JobState
    wish: Wish | None = Field(description="What was asked of it while it runs, until it is done")
    reason: str = Field(description="Why it failed, or what it waits for")
    spec: dict[str, Any] = Field(
        description="Its fields, those with their defaults included; what an erasure selects by is hidden"
    )
    progress: ProgressBody
    skipped: SkippedBody
    worker: WorkerBody | None = Field(description="Null unless it is running")
    runner_state: str = Field(description="What another service says of it, such as EMR")
    attempts: Count = Field(description="Attempts of this run without progress")
    runs: Count = Field(description="Runs that have ended")
    failed_runs: Count = Field(description="Those of them that failed")
    by: str = Field(description="Who created it")
    created_at: TimestampNumber
    changed_at: TimestampNumber
    run_began_at: TimestampNumber | None = Field(description="When the present run began; relative times mean that")
    ended_at: TimestampNumber | None
    next_at: TimestampNumber | None = Field(description="When it goes on, if it waits")
    log_lines: Count = Field(description="Lines of its log; the last 1000 are kept")
    revision: Count

    @classmethod
    def of(cls, job: Job) -> Self:
        """Encode the value."""
        return cls.model_validate(public_job(job))


class JobsBody(StrictBody):
    """Some jobs, newest first."""

    jobs: list[JobBody]
    cursor: str | None = Field(description="Continues after them; null if there are no more. A page may be short")

    @classmethod
    def of(cls, page: JobPage) -> Self:
        """Encode the value."""
        return cls(jobs=[JobBody.of(job) for job in page.jobs], cursor=page.cursor)


class JobLogLineBody(StrictBody):
    """A line of a job's log."""

    number: Count
    at: TimestampNumber
    text: str


class JobLogBody(StrictBody):
    """Lines of a job's log, in order. The last 1000 are kept."""

    lines: list[JobLogLineBody]
    after: Annotated[int, Field(ge=-1)] = Field(description="Give it as `after` to get the lines that follow")

    @classmethod
    def of(cls, lines: list[LogLine], after: int) -> Self:
        """Encode the value."""
        last = lines[-1].number if lines else after
        return cls(lines=[JobLogLineBody.model_validate(public_line(line)) for line in lines], after=last)


class PreviewStreamBody(StrictBody):
    """What a job would do with a stream."""

    vhost: str
    name: str
    incarnation: str
    first_offset: OffsetNumber | None = Field(description="Null if it deals with nothing of the stream")
    next_offset: OffsetNumber | None
    messages: Count
    read_bytes: Count
    requests: Count
    cost_usd: Dollars
    is_estimate: bool = Field(description="Messages and bytes were not added up, but taken in proportion")


class PreviewWarningBody(StrictBody):
    """What somebody should know before the job is created."""

    code: WarningCode
    text: str
    stream: str | None = Field(description="Null for the job as a whole")


class PreviewBody(StrictBody):
    """What a job would do if it began now. The sums are those of `streams`."""

    kind: JobKind
    matched_streams: Count = Field(description="Streams that match")
    is_cut: bool = Field(description="More streams may match than are in `streams`")
    is_endless: bool = Field(description="It goes on until it is cancelled")
    messages: Count
    read_bytes: Count = Field(description="Bytes that it reads from the bucket")
    requests: Count = Field(description="Requests to table and bucket")
    cost_usd: Dollars
    duration_s: Annotated[float, Field(ge=0)] | None = Field(description="At its rate, at least; null without one")
    streams: list[PreviewStreamBody] = Field(description="By name, at most 100")
    warnings: list[PreviewWarningBody]

    @classmethod
    def of(cls, preview: JobPreview) -> Self:
        """Encode the value."""
        return cls.model_validate(preview.to_dict())
