"""What the Spark scripts are given for a job: the script, and its arguments, which its own parser reads.

    compact              compact.py
    scrub, retention     maintain.py scrub, maintain.py retention
    erase                maintain.py erase, with the id of the job's erasure: it begins it, or goes on with it
    load, export         replay.py, to files of a table in a bucket

Each is safe to run again, as a job is that was paused: compaction and retention find what is left to do, an erasure has
an item that says how far it is, and a table has Spark's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.errors import RunnerError
from coldstream.jobs.job import Job
from coldstream.jobs.spec_fields import fixed_time
from coldstream.jobs.specs import (
    CompactSpec,
    EraseSpec,
    ExportSpec,
    JobSpec,
    LoadSpec,
    RetentionSpec,
    ScrubSpec,
    StoreSpec,
)
from coldstream.jobs.targets import ToTable
from coldstream.manifest.spec import AtTimestamp, parse_offset_spec
from coldstream.units import TimestampMs
from coldstream.upkeep.erase import MAX_BY, erasure_id_of

MOST_NAMES = 500
"""Streams that a run is given by name."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A script below the prefix of scripts, and its arguments."""

    script: str
    arguments: tuple[str, ...]


def not_for_emr(spec: JobSpec) -> str | None:  # noqa: PLR0911  a reason each
    """Return why EMR cannot run a job like this, None if it can."""
    match spec:
        case StoreSpec():
            return "EMR reads the archive, and no broker"
        case ScrubSpec() if _has_budget(spec):
            return "on EMR a scrub has no budget (max_requests, max_read)"
        case LoadSpec(target=ToTable(path=path)) if not path.startswith("s3://"):
            return f"a run on EMR has no directory that stays, and {path!r} is not s3://BUCKET/PREFIX"
        case LoadSpec(target=ToTable()) if spec.follow or spec.after_load != "keep":
            return "on EMR a load neither follows the stream nor deletes what was loaded"
        case LoadSpec() if not isinstance(spec.target, ToTable):
            return "EMR does not know the brokers of workers, and loads into tables alone"
        case ExportSpec(format="segments"):
            return "EMR writes tables, and no segments"
        case ExportSpec(destination=path) if not path.startswith("s3://"):
            return f"a run on EMR has no directory that stays, and {path!r} is not s3://BUCKET/PREFIX"
        case ExportSpec() if spec.schedule is not None:
            return "on EMR a second export to the same place would add to the first"
        case LoadSpec() | ExportSpec() if spec.window_by == "message" and (_is_time(spec.start) or _is_time(spec.end)):
            return "EMR cuts a window of time at chunks, and this one is to be cut at messages"
    return None


def _has_budget(spec: ScrubSpec) -> bool:
    fields = type(spec).model_fields
    return (spec.max_requests, spec.max_read) != (fields["max_requests"].default, fields["max_read"].default)


def _is_time(bound: str | None) -> bool:
    return bound is not None and isinstance(parse_offset_spec(bound, TimestampMs(0)), AtTimestamp)


def script_call(job: Job, names: Iterable[str], *, url_expiry_s: int, report: str) -> ScriptCall:
    """Return what EMR is to run for a job that was acquired, with the names of its streams; none are all.

    `report` names the cursor under which the script leaves its summary. Raises RunnerError.
    """
    spec = job.spec
    if (problem := not_for_emr(spec)) is not None:
        raise RunnerError(problem, job.id)
    streams = [f"--stream={name}" for name in names]
    if len(streams) > MOST_NAMES:
        raise RunnerError(f"a run on EMR is given {MOST_NAMES} names of streams at most, not {len(streams)}", job.id)
    shared = (f"--vhost={spec.vhost}", *(streams or ["--all"]), f"--report={report}")
    expiry = f"--url-expiry={url_expiry_s}s"
    match spec:
        case CompactSpec():
            return ScriptCall("compact.py", (*shared, expiry, *_compaction(spec)))
        case ScrubSpec():
            switches = [*(["--deep"] if spec.deep else []), *(["--repair"] if spec.repair else [])]
            return ScriptCall("maintain.py", ("scrub", *shared, *switches))
        case RetentionSpec():
            return ScriptCall("maintain.py", ("retention", *shared, expiry, *(["--dry-run"] if spec.dry_run else [])))
        case EraseSpec():
            return ScriptCall("maintain.py", ("erase", *shared, expiry, *_erasure(job, spec)))
        case LoadSpec() | ExportSpec():
            return ScriptCall("replay.py", (*shared, *_replay(job, spec)))
    raise RunnerError(f"EMR runs no {spec.kind}", job.id)


def _compaction(spec: CompactSpec) -> Iterator[str]:
    yield f"--older-than={spec.older_than}"
    yield f"--target-size={spec.target_size}"
    yield f"--encoding={spec.encoding}"
    yield f"--level={spec.level}"


def _erasure(job: Job, spec: EraseSpec) -> Iterator[str]:
    yield f"--erasure-id={erasure_id_of(job)}"
    yield f"--reason={spec.reason}"
    yield f"--by={job.by or 'somebody'} by job {job.id}"[: MAX_BY + len("--by=")]
    if spec.incarnation is not None:
        yield f"--incarnation={spec.incarnation}"
    if spec.offsets is not None:
        yield f"--offsets={spec.offsets}"
    if spec.selection is not None:
        yield f"--selection={spec.selection}"
    if spec.with_other_copies:
        yield "--with-quarantine"


def _replay(job: Job, spec: LoadSpec | ExportSpec) -> Iterator[str]:
    assert job.run_began_at is not None
    yield f"--from={fixed_time(spec.start, job.run_began_at)}"
    if spec.end is not None:
        yield f"--to={fixed_time(spec.end, job.run_began_at)}"
    yield f"--on-gap={'skip' if spec.allow_skipped else 'raise'}"
    if isinstance(spec, ExportSpec):
        form, path, gzip, partition_by = spec.format, spec.destination, spec.gzip, "stream,date"
        # Of its own, so that an export never takes the files of another one for its own.
        yield f"--checkpoint={path.rstrip('/')}/_coldstream/job-{job.id}"
    else:
        assert isinstance(spec.target, ToTable)
        form, path, gzip, partition_by = (
            spec.target.format,
            spec.target.path,
            spec.target.gzip,
            spec.target.partition_by,
        )
    yield f"--to-{form}={path}"
    if gzip and form == "jsonl":
        yield "--gzip"
    yield f"--partition-by={partition_by}"
