"""A job as its pages show it: what it is called, how far it is, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.jobs.job import Job, JobState
from coldstream.jobs.specs import EraseSpec
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, and what follows from its fields. `share` is from 0 to 1, None if nobody knows how much it is."""

    job: Job
    title: str
    subject: str
    share: float | None
    took_ms: int | None
    messages_a_second: float | None

    @property
    def can_pause(self) -> bool:
        """Whether it may be paused."""
        return not self.job.state.has_ended and self.job.state is not JobState.PAUSED and self.job.wish is None

    @property
    def can_resume(self) -> bool:
        """Whether it may be resumed; a failed one tries again."""
        return self.job.state in {JobState.PAUSED, JobState.FAILED}


def view_of(job: Job, now: TimestampMs) -> JobView:
    """Return what to show of a job."""
    spec, progress = job.spec, job.progress
    streams = (spec.stream,) if isinstance(spec, EraseSpec) else spec.streams
    subject = ", ".join(streams[:3]) + (f" and {len(streams) - 3} more" if len(streams) > 3 else "")  # noqa: PLR2004
    share = None
    if progress.total:
        share = min(1.0, progress.done / progress.total)
    elif job.state is JobState.SUCCEEDED:
        share = 1.0
    began, ended = job.run_began_at, job.ended_at
    took_ms = None if began is None else max(0, (ended or now) - began)
    is_running = job.state is JobState.RUNNING and took_ms is not None and took_ms > 0
    rate = progress.messages / took_ms * 1000 if is_running and took_ms else None
    return JobView(job, spec.name or f"{spec.kind.value} {subject or 'all streams'}", subject, share, took_ms, rate)
