"""Jobs in every state, as workers and people leave them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coldstream.jobs import changes
from coldstream.jobs.job import Job, JobProgress, Skipped
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.units import TimestampMs, now_ms

WORKER = "worker-1@archive"
_SKIPPED = "offsets 300 up to 312 of clicks: in quarantine"


def sample_jobs(jobs: JobStore, now: Callable[[], TimestampMs] = now_ms) -> dict[str, Job]:
    """Create jobs, and return them by their names."""
    streams = ["orders", "payments"]
    load = {"kind": "load", "streams": ["orders"], "target": {"type": "stream", "name": "orders-again"}, "rate": 5000}
    failed = {
        "kind": "load",
        "streams": ["clicks"],
        "vhost": "web",
        "target": {"type": "exchange", "name": "amq.topic"},
    }
    export = {"kind": "export", "streams": ["payments"], "destination": "s3://exports/payments"}

    def made(name: str, spec: dict[str, object]) -> str:
        return jobs.create(parse_spec({**spec, "name": name}), by="ops").id

    def taken(job: str, progress: JobProgress, *, skipped: Skipped = Skipped()) -> None:  # noqa: B008  frozen
        def change(found: Job) -> Job:
            return replace(changes.acquired(found, WORKER, 15_000, now()), progress=progress, skipped=skipped)

        jobs.update(job, change, say=f"taken by {WORKER}")

    found = {"nightly": made("Compact at night", {"kind": "compact", "schedule": "0 2 * * *"})}
    found["waiting"] = made("Payments for the auditors", export)
    taken(found["waiting"], JobProgress(done=360, total=900, messages=360, bytes=310_000, failures=2))
    slow = "S3 answered SlowDown; tried again in 30 s"
    jobs.update(
        found["waiting"],
        lambda job: changes.waits(job, TimestampMs(now() + 30_000), slow, now(), is_failure=True),
        say=f"waits: {slow}",
    )
    found["failed"] = made("Clicks to the topic exchange", failed)
    taken(found["failed"], JobProgress(700, 1500, "offsets", 700, 98_000, 3), skipped=Skipped(12, (_SKIPPED,)))
    jobs.update(found["failed"], lambda job: changes.failed(job, f"12 skipped: {_SKIPPED}", now()), say="failed")
    found["done"] = made("Scrub, every byte", {"kind": "scrub", "deep": True})
    taken(found["done"], JobProgress(1_200_000_000, 1_200_000_000, "bytes", bytes=1_200_000_000))
    jobs.update(found["done"], lambda job: changes.succeeded(job, now()), say="succeeded")
    found["paused"] = made("Old carts to the warehouse", {**load, "streams": ["carts"]})
    jobs.pause(found["paused"], by="ops")
    found["store"] = made("Keep the shop's streams", {"kind": "store", "streams": streams})
    taken(found["store"], JobProgress(2_140_000, None, "offsets", 2_118_400, 1_880_000_000, lag_ms=1800))
    found["running"] = made("Orders into staging", load)
    taken(found["running"], JobProgress(61_200, 90_000, "offsets", 60_950, 52_000_000))
    return {name: jobs.get(job) for name, job in found.items()}
