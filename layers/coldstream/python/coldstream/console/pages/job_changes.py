"""What is asked of a job: pause, resume, cancel, delete, and other values of some fields."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import RedirectResponse, Response

from coldstream.console.job_form import JobForm, edit_form, typed_of, value_of
from coldstream.console.page_request import PageRequest
from coldstream.console.pages.job_pages import find_job, job_page
from coldstream.console.site import Site
from coldstream.console.typed_confirmation import FIELD, check_typed, word_of
from coldstream.errors import InvalidInputError
from coldstream.jobs.job import Job
from coldstream.jobs.specs import spec_to_dict


def pause(site: Site, asked: PageRequest) -> Response:
    """Pause a job, or ask its worker to."""
    job = _to_change(site, asked)
    site.archive.jobs.pause(job.id, by=asked.visitor.holder.name)
    return _back(job)


def resume(site: Site, asked: PageRequest) -> Response:
    """Let a job go on, or try again."""
    job = _to_change(site, asked)
    site.archive.jobs.resume(job.id, by=asked.visitor.holder.name)
    return _back(job)


def cancel(site: Site, asked: PageRequest) -> Response:
    """Cancel a job, once its name was typed."""
    job = _to_change(site, asked)
    try:
        check_typed(word_of(job), asked.form.get(FIELD))
    except InvalidInputError as err:
        return job_page(site, asked, job, err, "cancel")
    site.archive.jobs.cancel(job.id, by=asked.visitor.holder.name)
    return _back(job)


def delete(site: Site, asked: PageRequest) -> Response:
    """Delete a job that has ended, once its name was typed."""
    job = _to_change(site, asked)
    try:
        check_typed(word_of(job), asked.form.get(FIELD))
    except InvalidInputError as err:
        return job_page(site, asked, job, err, "delete")
    site.archive.jobs.delete(job.id)
    return RedirectResponse("/jobs", HTTPStatus.SEE_OTHER)


def show_edit(site: Site, asked: PageRequest) -> Response:
    """Show the form of what can be changed."""
    job = _to_change(site, asked)
    typed = typed_of(spec_to_dict(job.spec))
    return site.page(asked, "job_edit.html", job=job, form=edit_form(job.kind, job.spec.EDITABLE, typed))


def edit(site: Site, asked: PageRequest) -> Response:
    """Change what was changed in the form."""
    job = _to_change(site, asked)
    form = edit_form(job.kind, job.spec.EDITABLE, asked.form)
    try:
        fields = _changed(job, form, asked)
        if fields:
            site.archive.jobs.edit(job.id, fields, by=asked.visitor.holder.name)
    except InvalidInputError as err:
        return site.page(asked, "job_edit.html", HTTPStatus.BAD_REQUEST, job=job, form=form.with_error(err))
    return _back(job)


def _changed(job: Job, form: JobForm, asked: PageRequest) -> dict[str, object]:
    """Return the fields whose value is another one. An empty field is none, or the default of one that is needed."""
    model = type(job.spec)
    now = spec_to_dict(job.spec)
    found = {}
    for field in form.fields:
        value = value_of(field, asked.form)
        if value is None:
            value = model.model_fields[field.name].default
        if value != now[field.name]:
            found[field.name] = value
    return found


def _to_change(site: Site, asked: PageRequest) -> Job:
    job = find_job(site, asked)
    asked.visitor.check_change(job.spec)
    return job


def _back(job: Job) -> Response:
    return RedirectResponse(f"/jobs/{job.id}", HTTPStatus.SEE_OTHER)
