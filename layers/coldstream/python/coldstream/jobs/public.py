"""A job as people and programs are shown it: by the HTTP API, the command line and the console. Pure.

It leaves out what is for workers alone: the cursor, the epoch and the beat. What an erasure selects is hidden, too: its
digests would let whoever reads them try values.
"""

from __future__ import annotations

from typing import Any

from coldstream.jobs.job import Job
from coldstream.jobs.log_lines import LogLine
from coldstream.jobs.specs import JobSpec, spec_to_dict

HIDDEN = "hidden"


def public_job(job: Job) -> dict[str, Any]:
    """Return a job for JSON. Times are milliseconds since 1970."""
    lease, progress, skipped = job.lease, job.progress, job.skipped
    return {
        "id": job.id,
        "kind": job.kind.value,
        "name": job.spec.name,
        "state": job.state.value,
        "wish": None if job.wish is None else job.wish.value,
        "reason": job.reason,
        "spec": public_spec(job.spec),
        "progress": {
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "messages": progress.messages,
            "bytes": progress.bytes,
            "failures": progress.failures,
            "lag_ms": progress.lag_ms,
        },
        "skipped": {"count": skipped.count, "named": list(skipped.named), "others": skipped.others},
        "worker": None if lease is None else {"name": lease.worker, "until": lease.until},
        "runner_state": job.runner_state,
        "attempts": job.attempts,
        "runs": job.runs,
        "failed_runs": job.failed_runs,
        "by": job.by,
        "created_at": job.created_at,
        "changed_at": job.changed_at,
        "run_began_at": job.run_began_at,
        "ended_at": job.ended_at,
        "next_at": job.next_at,
        "log_lines": job.lines,
        "revision": job.revision,
    }


def public_spec(spec: JobSpec) -> dict[str, Any]:
    """Return what a job is to do, for JSON."""
    found = spec_to_dict(spec)
    if found.get("selection") is not None:
        found["selection"] = HIDDEN
    return found


def public_line(line: LogLine) -> dict[str, Any]:
    """Return a line of a job's log for JSON."""
    return {"number": line.number, "at": line.at, "text": line.text}
