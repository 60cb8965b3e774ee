"""Create a job: a form, a preview of what it will do, and then the job itself."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from coldstream.console.job_form import KIND_WORDS, TARGET_NAMES, JobForm, form_of, given_by
from coldstream.console.page_request import FormFields, PageRequest
from coldstream.console.site import Site
from coldstream.console.typed_confirmation import FIELD, check_typed, word_to_create
from coldstream.dispatch.runner import check_creatable
from coldstream.errors import InvalidInputError
from coldstream.jobs.preview import JobPreview, preview
from coldstream.jobs.specs import JobKind, JobSpec, parse_spec
from coldstream.web.refusal import FORBIDDEN, Refusal

_KEY = "idempotency_key"
"""The name of a hidden field: no field of any kind of job has it."""

_NOT_CARRIED = {"step", FIELD, _KEY}


def show(site: Site, asked: PageRequest) -> Response:
    """Show the kinds of jobs, and the form of one."""
    _check_may_create(asked)
    kind = _kind_of(asked.query)
    if kind is None:
        return _page(site, asked, None)
    is_new = "step" not in asked.query
    return _page(site, asked, form_of(kind, asked.query, is_new=is_new))


def create(site: Site, asked: PageRequest) -> Response:
    """Show what a job would do, or create it: by the step that the form is at. What was typed is kept."""
    _check_may_create(asked)
    kind = _kind_of(asked.form)
    if kind is None:
        return _page(site, asked, None)
    form = form_of(kind, asked.form, is_new=False)
    try:
        spec = parse_spec(given_by(form, asked.form))
        asked.visitor.check_change(spec)
        check_creatable(spec)
        found = preview(site.archive.table, spec, asked.now)
    except InvalidInputError as err:
        return _page(site, asked, form.with_error(err), HTTPStatus.BAD_REQUEST)
    if asked.form.get("step") != "create":
        return _previewed(site, asked, form, found, spec, err=None)
    try:
        word = word_to_create(spec)
        if word is not None:
            check_typed(word[0], asked.form.get(FIELD))
    except InvalidInputError as err:
        return _previewed(site, asked, form, found, spec, err=err)
    key = asked.form.get(_KEY) or None
    job = site.archive.jobs.create(spec, by=asked.visitor.holder.name, idempotency_key=key)
    return RedirectResponse(f"/jobs/{job.id}", HTTPStatus.SEE_OTHER)


def _previewed(
    site: Site, asked: PageRequest, form: JobForm, found: JobPreview, spec: JobSpec, *, err: InvalidInputError | None
) -> Response:
    status = HTTPStatus.OK if err is None else HTTPStatus.BAD_REQUEST
    typed = asked.form.values.items()
    return _page(
        site,
        asked,
        form,
        status,
        preview=found,
        confirm=word_to_create(spec),
        err=err,
        carried=[(name, value) for name, some in typed if name not in _NOT_CARRIED for value in some],
        # A second click on the same preview creates no second job.
        key=asked.form.get(_KEY) or secrets.token_urlsafe(18),
    )


def _page(
    site: Site, asked: PageRequest, form: JobForm | None, status: HTTPStatus = HTTPStatus.OK, **content: object
) -> Response:
    given = {"preview": None, "confirm": None, "err": None, "carried": [], "key": "", **content}
    return site.page(
        asked, "job_new.html", status, form=form, kind_words=KIND_WORDS, target_names=TARGET_NAMES, **given
    )


def _kind_of(fields: FormFields) -> JobKind | None:
    try:
        return JobKind(fields.get("kind"))
    except ValueError:
        return None


def _check_may_create(asked: PageRequest) -> None:
    if not asked.visitor.may_create:
        raise Refusal(FORBIDDEN, "nothing can be changed here: the console only reads, or your token only may read")
