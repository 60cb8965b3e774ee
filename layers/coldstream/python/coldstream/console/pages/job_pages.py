"""The list of jobs, and one of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.responses import Response

from coldstream.console.job_view import view_of
from coldstream.console.page_request import PageRequest
from coldstream.console.site import Site
from coldstream.console.typed_confirmation import word_of
from coldstream.errors import InvalidInputError, InvalidQueryError
from coldstream.jobs.job import Job, JobState
from coldstream.jobs.public import public_spec
from coldstream.jobs.spec_fields import CommonSpec
from coldstream.jobs.specs import JobKind
from coldstream.web.refusal import FORBIDDEN, Refusal

PAGE_JOBS = 50
LOG_LINES = 200
QUICK_S, SLOW_S = 2, 10


def show_list(site: Site, asked: PageRequest) -> Response:
    """Show jobs, newest first. Cost: a Query, or a few."""
    states = tuple(_known(JobState, "state", text) for text in asked.query.all("state") if text)
    kinds = tuple(_known(JobKind, "kind", text) for text in asked.query.all("kind") if text)
    cursor = asked.query.get("cursor") or None
    page = site.archive.jobs.page(cursor, PAGE_JOBS, states=states, kinds=kinds)
    jobs = [view_of(job, asked.now) for job in page.jobs if asked.visitor.may_see(job.spec)]
    return site.page(
        asked,
        "jobs.html",
        jobs=jobs,
        states=states,
        kinds=kinds,
        all_states=list(JobState),
        all_kinds=list(JobKind),
        next_link=None if page.cursor is None else asked.query.link("/jobs", cursor=page.cursor),
        is_first=cursor is None,
        is_live=any(not one.job.state.has_ended for one in jobs),
        self_link=asked.query.link("/jobs"),
    )


def show_one(site: Site, asked: PageRequest) -> Response:
    """Show a job. Cost: two GetItems and a Query."""
    job = find_job(site, asked)
    return job_page(site, asked, job)


def find_job(site: Site, asked: PageRequest) -> Job:
    """Return the job of a page's path. Raises JobNotFoundError, Refusal."""
    job = site.archive.jobs.get(asked.request.path_params["job"])
    if not asked.visitor.may_see(job.spec):
        raise Refusal(FORBIDDEN, f"{asked.visitor.holder.name} may not see this job")
    return job


def job_page(site: Site, asked: PageRequest, job: Job, err: InvalidInputError | None = None, act: str = "") -> Response:
    """Return the page of a job; with what is wrong about a confirmation of `act`."""
    log = site.archive.jobs.log(job.id)
    seen = f"{job.state}.{job.wish or ''}"
    response = site.page(
        asked,
        "job.html",
        HTTPStatus.OK if err is None else HTTPStatus.BAD_REQUEST,
        view=view_of(job, asked.now),
        job=job,
        spec=_in_order(public_spec(job.spec)),
        log=log[-LOG_LINES:],
        left_out=max(0, len(log) - LOG_LINES),
        may_change=asked.visitor.may_change(job.spec),
        word=word_of(job),
        err=err,
        act=act,
        every_s=QUICK_S if job.state in {JobState.RUNNING, JobState.CREATED} else SLOW_S,
        live_link=f"/jobs/{job.id}?seen={seen}",
    )
    if asked.is_part and asked.query.get("seen") not in {"", seen}:
        # Other buttons go with the new state: all of the job is shown again.
        response.headers.update({"HX-Retarget": "#job", "HX-Reselect": "#job", "HX-Reswap": "outerHTML"})
    return response


def _in_order(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are the kind's own first, and then those that all kinds have."""
    own = {name: value for name, value in spec.items() if name not in CommonSpec.model_fields and name != "kind"}
    return own | {name: value for name, value in spec.items() if name not in own and name != "kind"}


_Word = TypeVar("_Word", bound=StrEnum)


def _known(kind: type[_Word], field: str, text: str) -> _Word:
    try:
        return kind(text)
    except ValueError:
        raise InvalidQueryError(field, f"{text[:40]!r} is none of {', '.join(kind)}") from None
