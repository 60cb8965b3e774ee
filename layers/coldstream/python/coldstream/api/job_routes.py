"""The routes of jobs: `/v1/jobs…`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Header, Path, Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from coldstream.api import serving
from coldstream.api.job_bodies import JobBody, JobLogBody, JobsBody, PreviewBody
from coldstream.api.job_rights import JobRight
from coldstream.api.request_body import json_object, no_body
from coldstream.dispatch.runner import check_runner
from coldstream.errors import InvalidInputError, JobStateError
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.preview import preview
from coldstream.jobs.specs import SPECS, EraseSpec, JobKind, JobSpec, parse_spec
from coldstream.jobs.store import MAX_KEY, MAX_PAGE_JOBS
from coldstream.resolve.caller import Caller
from coldstream.runtime.audit import AuditLine, audited
from coldstream.runtime.openapi_document import Answers, answers

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]  # it has no annotations

JSON = "application/json"
NOBODY = "the HTTP API"

JobId = Annotated[str, Path(description="The job's id", min_length=1, max_length=MAX_KEY)]


def _answers(success: str | Mapping[HTTPStatus, str], *problems: tuple[HTTPStatus, str]) -> Answers:
    forbidden = (HTTPStatus.FORBIDDEN, "The caller may not do that with jobs")
    return answers(success, forbidden, *problems, function="The function")


_NO_JOB = (HTTPStatus.NOT_FOUND, "The archive has no such job")
_STATE = (HTTPStatus.CONFLICT, "The job is in a state in which that cannot be done")
_MEDIA = (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is not said to be JSON")
_REUSED = (HTTPStatus.CONFLICT, "The idempotency key was given for another job")


@contextmanager
def _permitted(right: JobRight, operation: str, **fields: Any) -> Iterator[AuditLine]:
    """Write the audit line of what the block does, which begins by checking that the caller may do it."""
    event = router.current_event.raw_event
    message = "lookup" if right is JobRight.READ else "change"
    with audited(event, operation, message=message, **fields) as line:
        serving.served().rights.check(Caller.of(event), right)
        yield line


def _by() -> str:
    return Caller.of(router.current_event.raw_event).principal or NOBODY


@router.get(
    "/v1/jobs",
    operation_id="listJobs",
    summary="List jobs, newest first",
    tags=["jobs"],
    responses=_answers("Some of the jobs, and a cursor while there are more"),
)
def list_jobs(
    cursor: Annotated[
        str | None, Query(description="`cursor` of the page before", pattern=f"^[ -~]{{1,{MAX_KEY}}}$")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_JOBS, description="How many at most")] = 100,
    state: Annotated[JobState | None, Query(description="Only jobs in this state")] = None,
    kind: Annotated[JobKind | None, Query(description="Only jobs of this kind")] = None,
) -> JobsBody:
    """List jobs, a page at a time. A page may be short, or empty, and have a cursor. Costs a Query, or a few."""
    with _permitted(JobRight.READ, "list-jobs") as line:
        page = serving.served().jobs.page(
            cursor, limit, states=() if state is None else (state,), kinds=() if kind is None else (kind,)
        )
        line.fields["jobs"] = len(page.jobs)
        return JobsBody.of(page)


@router.post(
    "/v1/jobs",
    operation_id="createJob",
    summary="Create a job",
    tags=["jobs"],
    responses=_answers(
        {
            HTTPStatus.OK: "The job of an earlier request with the same idempotency key",
            HTTPStatus.CREATED: "The new job",
        },
        _REUSED,
        _MEDIA,
    ),
)
def create_job(
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=MAX_KEY,
            description="A repeated request with the same key and body creates no second job",
        ),
    ] = None,
) -> Response[JobBody]:
    """Create a job from its spec. Whoever runs jobs takes it as soon as it is due."""
    with _permitted(JobRight.WRITE, "create-job") as line:
        spec = parse_spec(json_object(router.current_event.raw_event))
        line.fields |= _told(spec)
        check_runner(spec)
        created = serving.served().jobs.create_once(spec, by=_by(), idempotency_key=key)
        line.fields |= {"job": created.job.id, "new": created.is_new}
        status = HTTPStatus.CREATED if created.is_new else HTTPStatus.OK
        location = {"Location": f"/v1/jobs/{created.job.id}"}
        return Response(status, JSON, JobBody.of(created.job), location)


@router.post(
    "/v1/jobs/preview",
    operation_id="previewJob",
    summary="Tell what a job would do, and what that costs",
    tags=["jobs"],
    responses=_answers("What the job would do if it began now", _MEDIA),
)
def preview_job() -> PreviewBody:
    """Preview a job from its spec, without creating it.

    Looks at 100 streams at most, at a few requests each.
    """
    with _permitted(JobRight.READ, "preview-job") as line:
        spec = parse_spec(json_object(router.current_event.raw_event))
        line.fields |= _told(spec)
        archive = serving.served()
        return PreviewBody.of(preview(archive.table, spec, archive.now()))


@router.get(
    "/v1/jobs/<job_id>",
    operation_id="showJob",
    summary="Show a job",
    tags=["jobs"],
    responses=_answers("The job", _NO_JOB),
)
def show_job(job_id: JobId) -> JobBody:
    """Return a job. Costs one GetItem."""
    with _permitted(JobRight.READ, "show-job", job=job_id):
        return JobBody.of(serving.served().jobs.get(job_id))


@router.patch(
    "/v1/jobs/<job_id>",
    operation_id="editJob",
    summary="Edit some fields of a job",
    tags=["jobs"],
    responses=_answers("The job as edited", _NO_JOB, _STATE, _MEDIA),
)
def edit_job(job_id: JobId) -> JobBody:
    """Change some fields of a job that has not ended; fields that are not given stay as they are.

    A running job goes on with them from its next safe place. Which fields can change depends on its kind.
    """
    with _permitted(JobRight.WRITE, "edit-job", job=job_id) as line:
        fields = json_object(router.current_event.raw_event)
        if not fields:
            raise InvalidInputError("body", "names no field")
        line.fields["edited"] = sorted(name[:80] for name in fields)[:100]
        jobs = serving.served().jobs
        _check_editable(jobs.get(job_id), fields)
        return JobBody.of(jobs.edit(job_id, fields, by=_by()))


@router.delete(
    "/v1/jobs/<job_id>",
    operation_id="deleteJob",
    summary="Delete a job that has ended, and its log",
    tags=["jobs"],
    responses=_answers({HTTPStatus.NO_CONTENT: "It is deleted"}, _NO_JOB, _STATE),
)
def delete_job(job_id: JobId) -> Response[None]:
    """Delete a job. One that has not ended must be cancelled before."""
    with _permitted(JobRight.WRITE, "delete-job", job=job_id):
        no_body(router.current_event.raw_event)
        serving.served().jobs.delete(job_id)
        return Response(HTTPStatus.NO_CONTENT)


@router.post(
    "/v1/jobs/<job_id>/pause",
    operation_id="pauseJob",
    summary="Pause a job",
    tags=["jobs"],
    responses=_answers("The job: paused, or asked to", _NO_JOB, _STATE),
)
def pause_job(job_id: JobId) -> JobBody:
    """Pause a job. A running one stops at its next safe place; until then `wish` is `pause`."""
    return _steered(job_id, "pause-job", lambda: serving.served().jobs.pause(job_id, by=_by()))


@router.post(
    "/v1/jobs/<job_id>/resume",
    operation_id="resumeJob",
    summary="Let a paused job go on, or a failed one try again",
    tags=["jobs"],
    responses=_answers("The job, which goes on at its cursor", _NO_JOB, _STATE),
)
def resume_job(job_id: JobId) -> JobBody:
    """Resume a job: a paused one goes on, a failed one tries again, both where they were."""
    return _steered(job_id, "resume-job", lambda: serving.served().jobs.resume(job_id, by=_by()))


@router.post(
    "/v1/jobs/<job_id>/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    tags=["jobs"],
    responses=_answers("The job: cancelled, or asked to be", _NO_JOB, _STATE),
)
def cancel_job(job_id: JobId) -> JobBody:
    """Cancel a job for good. A running one stops at its next safe place; until then `wish` is `cancel`."""
    return _steered(job_id, "cancel-job", lambda: serving.served().jobs.cancel(job_id, by=_by()))


@router.get(
    "/v1/jobs/<job_id>/log",
    operation_id="readJobLog",
    summary="Read a job's log",
    tags=["jobs"],
    responses=_answers("Lines of the log", _NO_JOB),
)
def read_job_log(
    job_id: JobId,
    after: Annotated[int, Query(ge=-1, le=2**53, description="Lines past this number; -1 for all that are kept")] = -1,
) -> JobLogBody:
    """Return the lines of a job's log past a number. Costs a GetItem and one Query."""
    with _permitted(JobRight.READ, "read-job-log", job=job_id):
        return JobLogBody.of(serving.served().jobs.log(job_id, after=after), after)


def _steered(job_id: str, operation: str, steer: Callable[[], Job]) -> JobBody:
    with _permitted(JobRight.WRITE, operation, job=job_id) as line:
        no_body(router.current_event.raw_event)
        job = steer()
        line.fields["state"] = job.state.value
        return JobBody.of(job)


def _check_editable(job: Job, fields: Collection[str]) -> None:
    """Refuse fields that jobs of this kind keep, though others change them. Raises JobStateError."""
    editable = {name for kind in SPECS.values() for name in kind.EDITABLE}
    for name in fields:
        if name in editable - job.spec.EDITABLE:
            can = ", ".join(sorted(job.spec.EDITABLE))
            raise JobStateError(job.id, f"is a {job.kind} job, whose {name} cannot be edited; these can: {can}")


def _told(spec: JobSpec) -> dict[str, Any]:
    """Return what an audit wants to know of a job: never the values that an erasure selects by."""
    streams = (spec.stream,) if isinstance(spec, EraseSpec) else spec.streams
    told: dict[str, Any] = {"kind": spec.kind.value, "vhost": spec.vhost, "streams": list(streams[:20])}
    if isinstance(spec, EraseSpec):
        told["reason"] = spec.reason
    return told
