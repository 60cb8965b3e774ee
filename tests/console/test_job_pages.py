"""Jobs: forms by kind, previews, what is typed to confirm, and changes of one."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from html import unescape

import httpx
import pytest

from coldstream.console.job_form import form_of, given_by, typed_of
from coldstream.console.page_request import FormFields
from coldstream.console.typed_confirmation import word_to_create
from coldstream.errors import OutcomeUnknownError
from coldstream.jobs import changes
from coldstream.jobs.job import JobState
from coldstream.jobs.specs import SPECS, JobKind, parse_spec, spec_to_dict
from coldstream.jobs.store import JobStore
from coldstream.units import now_ms
from tests.support.amqp_samples import encode
from tests.support.console_app import access_of, browser, console
from tests.support.html_checks import check_page
from tests.support.interposed import Interposed
from tests.support.shown_archive import ShownArchive

NEEDED: Mapping[JobKind, dict[str, str]] = {
    JobKind.STORE: {"streams": "orders"},
    JobKind.LOAD: {"streams": "orders", "target.type": "stream", "target.name": "orders-again"},
    JobKind.COMPACT: {},
    JobKind.SCRUB: {},
    JobKind.ERASE: {"stream": "orders", "offsets": "0:10", "reason": "ticket 7"},
    JobKind.EXPORT: {"streams": "orders", "destination": "s3://exports/orders"},
    JobKind.RETENTION: {},
}
Script = Callable[[httpx.AsyncClient, JobStore], Awaitable[None]]


def play(script: Script) -> None:
    async def run() -> None:
        archive = ShownArchive(now_ms())
        archive.add("orders", [encode(body=b"order")] * 30)
        access = access_of(archive)
        async with browser(console(access=access)) as client:
            await script(client, access.jobs)

    asyncio.run(run())


def hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of the last form of a page."""
    form = page.rpartition('action="/jobs/new"')[2]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in found}


def jobs_of(jobs: JobStore) -> list[JobState]:
    return [job.state for job in jobs.page().jobs]


@pytest.mark.parametrize("kind", JobKind)
def test_the_form_of_a_kind_as_it_is_makes_the_spec_of_its_defaults(kind: JobKind) -> None:
    asked_for = FormFields({"kind": (kind.value,), **{name: (value,) for name, value in NEEDED[kind].items()}})
    form = form_of(kind, asked_for, is_new=True)
    typed = {field.name: (field.value,) for field in form.fields if field.widget != "check" or field.value}
    spec = parse_spec(given_by(form, FormFields({**typed, "target.type": (form.target,)})))
    needed = {name: value.split("\n") if name == "streams" else value for name, value in NEEDED[kind].items()}
    target = {name.removeprefix("target."): needed.pop(name) for name in list(needed) if name.startswith("target.")}
    assert spec == parse_spec({"kind": kind.value, **needed, **({"target": target} if target else {})})


@pytest.mark.parametrize("kind", JobKind)
def test_a_form_asks_for_every_field_but_those_that_nobody_gives(kind: JobKind) -> None:
    names = {field.name for field in form_of(kind, FormFields(), is_new=True).fields}
    fields = set(SPECS[kind].model_fields) - {"kind", "selection", "target"}
    assert fields == {name for name in names if not name.startswith("target.")}


def test_a_spec_that_is_typed_again_is_the_same() -> None:
    given = {"kind": "export", "streams": ["a", "b c"], "destination": "/tmp", "gzip": True, "max_attempts": 7}
    spec = parse_spec({**given, "start": "-1h", "schedule": "every 6h"})
    form = form_of(JobKind.EXPORT, typed_of(spec_to_dict(spec)), is_new=False)
    assert parse_spec(given_by(form, typed_of(spec_to_dict(spec)))) == spec


@pytest.mark.parametrize("kind", JobKind)
def test_a_job_is_previewed_created_and_shown(kind: JobKind) -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        shown = await client.get(f"/jobs/new?kind={kind.value}")
        assert check_page(shown.text).problems == []
        previewed = await client.post("/jobs/new", data={"kind": kind.value, "step": "preview", **NEEDED[kind]})
        assert previewed.status_code == 200
        assert "What this job will do" in previewed.text
        assert jobs_of(jobs) == []
        sent = hidden(previewed.text)
        typed = {JobKind.ERASE: "orders", JobKind.RETENTION: "retention"}.get(kind)
        if typed is not None:
            refused = await client.post("/jobs/new", data={**sent, "confirm": typed + "x"})
            assert refused.status_code == 400
            assert "to confirm" in refused.text
            assert jobs_of(jobs) == []
        made = [await client.post("/jobs/new", data={**sent, "confirm": typed or ""}) for _ in range(2)]
        assert made[0].status_code == 303
        assert made[0].headers["Location"] == made[1].headers["Location"]  # a second click creates no second job
        assert jobs_of(jobs) == [JobState.CREATED]
        page = await client.get(made[0].headers["Location"])
        assert check_page(page.text).problems == []

    play(script)


def test_a_load_that_deletes_needs_the_name_typed() -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        sent = {"kind": "load", "step": "create", "after_load": "delete", **NEEDED[JobKind.LOAD]}
        assert (await client.post("/jobs/new", data=sent)).status_code == 400
        assert (await client.post("/jobs/new", data={**sent, "confirm": "orders"})).status_code == 303
        assert len(jobs_of(jobs)) == 1

    play(script)


def test_a_dry_run_of_retention_needs_nothing_typed() -> None:
    async def script(client: httpx.AsyncClient, _: JobStore) -> None:
        sent = {"kind": "retention", "step": "create", "dry_run": "on"}
        assert (await client.post("/jobs/new", data=sent)).status_code == 303

    play(script)


@pytest.mark.parametrize(
    ("kind", "changed", "field"),
    [
        ("load", {"target.name": ""}, "target-name"),
        ("load", {"rate": "fast"}, "rate"),
        ("load", {"streams": ""}, "streams"),
        ("load", {"start": "nonsense"}, "start"),
        ("load", {"poll_interval": "0.1s"}, "poll_interval"),
        ("store", {"max_lag": "soon"}, "max_lag"),
        ("compact", {"level": "99"}, "level"),
        ("compact", {"schedule": "every second"}, "schedule"),
        ("scrub", {"max_attempts": "1.5"}, "max_attempts"),
        ("erase", {"offsets": "1-2"}, "offsets"),
        ("erase", {"reason": ""}, "reason"),
        ("export", {"destination": ""}, "destination"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_what_was_typed_stays(
    kind: str, changed: dict[str, str], field: str
) -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        sent = {"kind": kind, "step": "preview", "name": "mine", **NEEDED[JobKind(kind)], **changed}
        answer = await client.post("/jobs/new", data=sent)
        assert answer.status_code == 400
        assert check_page(answer.text).problems == []
        assert f'id="p-f-{field}"' in answer.text
        assert 'value="mine"' in answer.text
        for value in changed.values():
            assert value in answer.text
        assert jobs_of(jobs) == []

    play(script)


def test_a_job_is_edited_in_what_can_be_changed_and_only_that() -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        load = {"kind": "load", "streams": ["orders"], "target": {"type": "stream", "name": "again"}, "rate": 100}
        job = jobs.create(parse_spec(load))
        form = await client.get(f"/jobs/{job.id}/edit")
        report = check_page(form.text)
        assert report.problems == []
        names = {one["name"] for one in report.inputs}
        assert names == {"name", "schedule", "max_attempts", "allow_skipped", "rate", "end", "poll_interval"}
        sent = {
            "name": "slow",
            "max_attempts": "5",
            "rate": "50",
            "end": "",
            "poll_interval": "30s",
            "streams": "other",
        }
        assert (await client.post(f"/jobs/{job.id}/edit", data=sent)).status_code == 303
        found = jobs.get(job.id)
        assert (found.spec.name, found.spec.rate, found.spec.streams) == ("slow", 50, ("orders",))  # type: ignore[union-attr]
        wrong = await client.post(f"/jobs/{job.id}/edit", data={**sent, "rate": "-1"})
        assert (wrong.status_code, 'id="p-f-rate"' in wrong.text) == (400, True)
        without = await client.post(f"/jobs/{job.id}/edit", data={**sent, "rate": ""})
        assert (without.status_code, jobs.get(job.id).spec.rate) == (303, None)  # type: ignore[union-attr]

    play(script)


def test_a_job_is_steered_and_each_change_names_who_asked() -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        job = jobs.create(parse_spec({"kind": "scrub", "name": "look around"}))
        form = {"x": ""}
        for verb, state in (("pause", JobState.PAUSED), ("resume", JobState.WAITING)):
            assert (await client.post(f"/jobs/{job.id}/{verb}", data=form)).status_code == 303
            assert jobs.get(job.id).state is state
        assert (await client.post(f"/jobs/{job.id}/delete", data={"confirm": "look around"})).status_code == 409
        for wrong in ("", "look aroun", job.id):
            answer = await client.post(f"/jobs/{job.id}/cancel", data={"confirm": wrong})
            assert answer.status_code == 400
            assert check_page(answer.text).problems == []
        assert (await client.post(f"/jobs/{job.id}/cancel", data={"confirm": " look around "})).status_code == 303
        assert jobs.get(job.id).state is JobState.CANCELLED
        ended = await client.post(f"/jobs/{job.id}/pause", data=form)
        assert (ended.status_code, "has ended" in ended.text) == (409, True)
        assert [line.text for line in jobs.log(job.id)][1:] == [
            f"{verb}, by address 127.0.0.1" for verb in ("pause", "resume", "cancel")
        ]
        assert (await client.post(f"/jobs/{job.id}/delete", data={"confirm": "look around"})).status_code == 303
        assert jobs.find(job.id) is None

    play(script)


def test_a_service_that_does_not_answer_leaves_a_503_that_names_the_place_and_no_half_of_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coldstream.retry.time.sleep", lambda _: None)

    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        form = {"kind": "scrub", "step": "create", "idempotency_key": "a-key"}
        table = Interposed(jobs._table)
        monkeypatch.setattr(jobs, "_table", table)
        with table.failing("put_state", lambda: OutcomeUnknownError("state item #open-jobs 7: no answer")):
            answer = await client.post("/jobs/new", data=form)
            part = await client.post("/jobs/new", data=form, headers={"HX-Request": "true"})
        assert answer.status_code == part.status_code == 503
        assert "Retry-After" in answer.headers
        assert "state item #open-jobs 7: no answer" in answer.text
        assert "Look in a moment whether it was done" in answer.text
        assert check_page(answer.text).problems == []
        assert jobs_of(jobs) == []
        # The page that is there stays, with its form: sent again, it creates one job, however often.
        assert part.headers["HX-Retarget"] == "#notice"
        first, second = [await client.post("/jobs/new", data=form) for _ in range(2)]
        assert first.status_code == second.status_code == 303
        assert len(jobs_of(jobs)) == 1

    play(script)


def test_a_running_job_is_asked_and_shows_that_it_was() -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        job = jobs.create(parse_spec({"kind": "scrub"}))
        jobs.update(job.id, lambda found: changes.acquired(found, "w", 1000, now_ms()))
        seen = "running."
        part = {"HX-Request": "true"}
        same = await client.get(f"/jobs/{job.id}?seen={seen}", headers=part)
        assert "HX-Retarget" not in same.headers
        await client.post(f"/jobs/{job.id}/pause", data={"x": ""})
        changed = await client.get(f"/jobs/{job.id}?seen={seen}", headers=part)
        assert changed.headers["HX-Retarget"] == "#job"
        assert "pausing" in changed.text

    play(script)


def test_a_job_that_has_ended_is_not_asked_for_again() -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        job = jobs.create(parse_spec({"kind": "scrub"}))
        assert "hx-trigger" in (await client.get(f"/jobs/{job.id}")).text
        jobs.cancel(job.id)
        assert "hx-trigger" not in (await client.get(f"/jobs/{job.id}")).text

    play(script)


def test_the_list_is_filtered_and_goes_on_page_by_page() -> None:
    async def script(client: httpx.AsyncClient, jobs: JobStore) -> None:
        for number in range(120):
            jobs.create(parse_spec({"kind": "scrub" if number % 2 else "compact", "name": f"job {number}"}))
        found: list[str] = []
        link = "/jobs?kind=scrub"
        while link:
            page = await client.get(link)
            report = check_page(page.text)
            assert report.problems == []
            found += re.findall(r"<bdi>(job \d+)</bdi>", page.text)
            link = next((one for one in report.links if "cursor=" in one and one != link), "")
        assert sorted(found) == sorted(f"job {number}" for number in range(1, 120, 2))
        assert "No such jobs" in (await client.get("/jobs?state=failed")).text

    play(script)


@pytest.mark.parametrize("name", ["\u202eorders", " x", "a  b", "é", "x" * 200, "a\tb"])
def test_a_name_that_nobody_can_type_is_not_asked_for(name: str) -> None:
    spec = parse_spec({"kind": "erase", "stream": name, "offsets": "1:2", "reason": "r"})
    assert word_to_create(spec) == ("erase", "erases the bytes of messages for good")
