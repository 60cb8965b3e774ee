"""How jobs and previews of jobs are shown to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coldstream.terminal.output import (
    PRICES,
    count_text,
    duration_text,
    printable,
    size_text,
    usd_text,
    write,
    write_table,
)
from coldstream.units import TimestampMs, format_timestamp

if TYPE_CHECKING:
    from coldstream.jobs.job import Job, JobProgress
    from coldstream.jobs.log_lines import LogLine
    from coldstream.jobs.preview import JobPreview

HEADS = ("job", "kind", "name", "state", "done", "messages", "lag", "skipped", "created at")
SHOWN_STREAMS = 20
"""Streams of a preview that are listed; the rest is counted."""


def write_jobs(jobs: Sequence[Job]) -> None:
    """Write jobs as a table."""
    write_table(HEADS, [_row(job) for job in jobs])


def write_job(job: Job) -> None:
    """Write all that there is to know of a job, a line each."""
    from coldstream.jobs.public import public_spec

    progress, skipped = job.progress, job.skipped
    lines: list[tuple[str, object]] = [
        ("job", job.id),
        ("kind", job.kind),
        ("name", job.spec.name or None),
        ("state", state_text(job)),
        *([("reason", job.reason)] if job.reason else []),
        ("done", done_text(progress)),
        ("messages", f"{progress.messages:,}"),
        ("bytes", size_text(progress.bytes)),
        *([("lag", _lag_text(progress))] if progress.lag_ms is not None else []),
        ("failures", f"{progress.failures:,}"),
        ("skipped", f"{skipped.count:,} {progress.unit}" if skipped.count else 0),
        *[("", what) for what in skipped.named],
        *([("", f"and {skipped.others:,} more")] if skipped.others else []),
        ("worker", None if job.lease is None else job.lease.worker),
        *([("runner", job.runner_state)] if job.runner_state else []),
        ("attempts", job.attempts),
        *([("runs", f"{job.runs:,}, {job.failed_runs:,} of them failed")] if job.spec.schedule else []),
        *([("goes on at", _time(job.next_at))] if job.next_at is not None and not job.state.has_ended else []),
        ("created", f"{_time(job.created_at)}{f' by {job.by}' if job.by else ''}"),
        ("run began at", _time(job.run_began_at)),
        ("changed at", _time(job.changed_at)),
        *([("ended at", _time(job.ended_at))] if job.ended_at is not None else []),
        *[
            (f"  {name}", _value_text(value))
            for name, value in public_spec(job.spec).items()
            if name not in {"kind", "name"} and value not in (None, "", [], False)
        ],
    ]
    for label, value in lines:
        write(f"{label:<18}{printable(value)}".rstrip())


def write_log_line(line: LogLine) -> None:
    """Write a line of a job's log."""
    write(log_text(line))


def log_text(line: LogLine) -> str:
    """Return a line of a job's log as text."""
    return f"{format_timestamp(line.at)}  {printable(line.text)}"


def write_preview(preview: JobPreview) -> None:
    """Write what a job would do."""
    write_table(
        ("vhost", "stream", "from offset", "to offset", "messages", "to read", "requests"),
        [
            (
                one.stream.vhost,
                one.stream.name,
                one.first_offset,
                one.next_offset,
                f"{'about ' if one.is_estimate else ''}{one.messages:,}",
                size_text(one.read_bytes),
                one.requests,
            )
            for one in preview.streams[:SHOWN_STREAMS]
        ],
    )
    if len(preview.streams) > SHOWN_STREAMS:
        write(f"and {len(preview.streams) - SHOWN_STREAMS} more")
    write("")
    for label, value in (
        ("streams", f"{preview.matched:,}{' or more' if preview.is_cut else ''}"),
        ("messages", f"about {preview.messages:,}"),
        ("to read", f"about {size_text(preview.read_bytes)}"),
        ("requests", f"about {preview.requests:,}"),
        ("cost", f"about {usd_text(preview.usd)} {PRICES}"),
        ("takes", _takes_text(preview)),
    ):
        write(f"{label:<18}{value}")
    for warning in preview.warnings:
        where = "" if warning.stream is None else f"{warning.stream}: "
        write(printable(f"note: {where}{warning.text}"))


def state_text(job: Job) -> str:
    """Return a job's state, with what was asked of it and is not done yet."""
    return f"{job.state}, {job.wish} asked" if job.wish is not None else str(job.state)


def done_text(progress: JobProgress) -> str:
    """Return how far a run is."""
    if progress.total:
        share = min(100, 100 * progress.done // progress.total)
        return f"{share}% of {count_text(progress.total, progress.unit.removesuffix('s'))}"
    return f"{progress.done:,} {progress.unit}" if progress.done else "-"


def _row(job: Job) -> tuple[object, ...]:
    return (
        job.id,
        job.kind,
        job.spec.name or None,
        state_text(job),
        done_text(job.progress),
        job.progress.messages,
        _lag_text(job.progress),
        job.skipped.count,
        _time(job.created_at),
    )


def _takes_text(preview: JobPreview) -> str:
    if preview.is_endless:
        return "until it is cancelled"
    if preview.duration_s is None:
        return "as long as it needs: no rate is set"
    return f"{duration_text(preview.duration_s)} or more, at its rate"


def _lag_text(progress: JobProgress) -> str | None:
    return None if progress.lag_ms is None else duration_text(progress.lag_ms / 1000)


def _time(timestamp: TimestampMs | None) -> str | None:
    return None if timestamp is None else format_timestamp(timestamp)


def _value_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner not in (None, False))
    return str(value)
