"""The routes of jobs, through the handler: each answer, and each refusal."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from coldstream.errors import UnavailableError
from coldstream.jobs.attempt import acquire
from coldstream.jobs.job import JobState
from coldstream.jobs.specs import JobKind
from tests.jobs.test_specs import LEAST
from tests.support.asked_api import PROBLEM, ApiReply, AskedApi

SCRUB = {"kind": "scrub"}
UNKNOWN = "0000000000-aaaaaa"


def created(api: AskedApi, spec: dict[str, Any] = SCRUB) -> str:
    reply = api("POST", "/v1/jobs", spec)
    assert reply.status == 201
    return str(reply.body["id"])


def run(api: AskedApi, job_id: str) -> None:
    """Let a worker take a job."""
    jobs = api.served.jobs
    assert acquire(jobs, jobs.get(job_id), "worker-1") is not None


def is_problem(reply: ApiReply, status: int, kind: str, field: str | None = None) -> bool:
    assert reply.headers["content-type"] == PROBLEM
    assert reply.body["instance"].startswith("urn:coldstream:request:")
    assert reply.body["status"] == reply.status
    told = (reply.status, reply.body["type"], reply.body.get("field"))
    return told == (status, f"urn:coldstream:problem:{kind}", field)


@pytest.mark.parametrize("kind", JobKind)
def test_a_job_of_each_kind_is_created_and_shown_with_its_defaults(api: AskedApi, kind: JobKind) -> None:
    spec = {"kind": kind.value, **LEAST[kind]}
    reply = api("POST", "/v1/jobs", spec)
    assert reply.status == 201
    job = reply.body
    assert reply.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["kind"], job["state"], job["by"]) == (kind.value, "created", "the HTTP API")
    assert job["spec"].items() >= {"max_attempts": 5, "runner": "auto"}.items()
    assert api("GET", reply.headers["location"]).body == job


def test_what_workers_alone_need_is_not_shown(api: AskedApi) -> None:
    job = api("GET", f"/v1/jobs/{created(api)}").body
    assert not {"cursor", "epoch", "lease", "key_hash"} & job.keys()


def test_what_an_erasure_selects_by_is_never_told(api: AskedApi) -> None:
    spec = {"kind": "erase", "stream": "orders", "key": "customer-4711", "reason": "ticket 1"}
    job_id = created(api, spec)
    shown = str(api("GET", f"/v1/jobs/{job_id}").body) + str(api("GET", "/v1/jobs").body)
    assert "customer-4711" not in shown
    assert api("GET", f"/v1/jobs/{job_id}").body["spec"]["selection"] == "hidden"


def test_a_repeat_with_the_same_key_is_the_same_job(api: AskedApi) -> None:
    headers = {"Idempotency-Key": "night of the 27th"}
    first = api("POST", "/v1/jobs", SCRUB, headers=headers)
    repeat = api("POST", "/v1/jobs", SCRUB, headers=headers)
    assert (first.status, repeat.status) == (201, 200)
    assert repeat.body == first.body
    assert repeat.headers["location"] == first.headers["location"]
    assert len(api("GET", "/v1/jobs").body["jobs"]) == 1
    other = api("POST", "/v1/jobs", {"kind": "retention"}, headers=headers)
    assert is_problem(other, 409, "idempotency-key-reused")


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_that_is_none_is_refused(api: AskedApi, key: str) -> None:
    reply = api("POST", "/v1/jobs", SCRUB, headers={"Idempotency-Key": key})
    assert is_problem(reply, 400, "invalid-query", "idempotency-key")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "kind"),
        ({"kind": "copy"}, "kind"),
        ({"kind": "scrub", "bogus": 1}, "bogus"),
        ({"kind": "load", "streams": ["orders"], "target": {"type": "queue"}}, "target.type"),
        ({"kind": "erase", "stream": "orders", "reason": "x"}, "offsets"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/preview"])
def test_a_field_that_is_wrong_is_named(api: AskedApi, path: str, spec: dict[str, Any], field: str) -> None:
    assert is_problem(api("POST", path, spec), 400, "invalid-query", field)
    assert api("GET", "/v1/jobs").body["jobs"] == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}{}",
        b'{"kind": "scrub", "kind": "erase"}',
        b'{"rate": NaN}',
        b"\xff",
        b"[" * 99_999,
    ],
)
def test_a_body_that_is_no_json_object_is_refused(api: AskedApi, raw: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert is_problem(api("POST", "/v1/jobs", raw=raw, headers=headers), 400, "invalid-query", "body")


def test_a_whole_number_is_an_integer_however_it_is_written(api: AskedApi) -> None:
    reply = api("POST", "/v1/jobs", raw=b'{"kind": "scrub", "max_attempts": 18.0, "max_requests": 1e3}')
    assert (reply.status, reply.body["spec"]["max_attempts"], reply.body["spec"]["max_requests"]) == (201, 18, 1000)
    for raw in (b'{"kind": "scrub", "max_attempts": 18.5}', b'{"kind": "scrub", "max_attempts": 1e999}'):
        assert is_problem(api("POST", "/v1/jobs", raw=raw), 400, "invalid-query", "max_attempts")


def test_a_body_over_the_bound_is_refused(api: AskedApi) -> None:
    raw = b'{"kind": "scrub", "name": "' + b"x" * (256 << 10) + b'"}'
    assert is_problem(api("POST", "/v1/jobs", raw=raw), 400, "invalid-query", "body")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_body_of_another_media_type_is_refused(api: AskedApi, media_type: str) -> None:
    reply = api("POST", "/v1/jobs", SCRUB, headers={"content-type": media_type})
    assert is_problem(reply, 415, "unsupported-media-type")


def test_json_with_a_charset_is_json(api: AskedApi) -> None:
    assert api("POST", "/v1/jobs", SCRUB, headers={"content-type": "Application/JSON; charset=utf-8"}).status == 201


def test_jobs_are_listed_newest_first_by_pages(api: AskedApi) -> None:
    made = [created(api) for _ in range(5)]
    seen, target = set(), "/v1/jobs?limit=2"
    while True:
        page = api("GET", target).body
        assert len(page["jobs"]) <= 2
        seen |= {job["id"] for job in page["jobs"]}
        if page["cursor"] is None:
            break
        target = f"/v1/jobs?limit=2&cursor={quote(page['cursor'])}"
    assert seen == set(made)


def test_jobs_are_listed_by_state_and_kind(api: AskedApi) -> None:
    scrub, retention = created(api), created(api, {"kind": "retention"})
    api("POST", f"/v1/jobs/{scrub}/pause")
    listed = lambda query: [job["id"] for job in api("GET", f"/v1/jobs?{query}").body["jobs"]]  # noqa: E731
    assert listed("state=paused") == [scrub]
    assert listed("kind=retention") == [retention]
    assert listed("state=paused&kind=retention") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=x", "limit"),
        ("state=done", "state"),
        ("kind=copy", "kind"),
        ("state=paused&state=failed", "state"),
        ("cursor=", "cursor"),
        ("cursor=%0A", "cursor"),
        (f"cursor={'x' * 300}", "cursor"),
        ("stat=paused", "stat"),
    ],
)
def test_a_query_that_means_nothing_names_its_parameter(api: AskedApi, query: str, field: str) -> None:
    assert is_problem(api("GET", f"/v1/jobs?{query}"), 400, "invalid-query", field)


def test_a_path_without_parameters_takes_none(api: AskedApi) -> None:
    assert is_problem(api("GET", f"/v1/jobs/{created(api)}?after=1"), 400, "invalid-query", "after")


def test_a_job_is_paused_resumed_and_cancelled(api: AskedApi) -> None:
    job_id = created(api)
    states = [api("POST", f"/v1/jobs/{job_id}/{verb}").body["state"] for verb in ("pause", "resume", "cancel")]
    assert states == ["paused", "waiting", "cancelled"]


def test_a_running_job_is_asked_and_shows_its_worker(api: AskedApi) -> None:
    job_id = created(api)
    run(api, job_id)
    job = api("POST", f"/v1/jobs/{job_id}/pause").body
    assert (job["state"], job["wish"], job["worker"]["name"]) == ("running", "pause", "worker-1")


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_what_a_state_does_not_allow_is_a_conflict(api: AskedApi, verb: str) -> None:
    job_id = created(api)
    api("POST", f"/v1/jobs/{job_id}/cancel")
    assert is_problem(api("POST", f"/v1/jobs/{job_id}/{verb}"), 409, "job-state")
    assert is_problem(api("PATCH", f"/v1/jobs/{job_id}", {"name": "x"}), 409, "job-state")


def test_a_job_is_edited_field_by_field(api: AskedApi) -> None:
    job_id = created(api, {"kind": "load", **LEAST[JobKind.LOAD]})
    job = api("PATCH", f"/v1/jobs/{job_id}", {"rate": 100.0, "end": "5000"}).body
    assert (job["spec"]["rate"], job["spec"]["end"], job["spec"]["start"]) == (100.0, "5000", "first")


@pytest.mark.parametrize(
    ("fields", "field"),
    [({}, "body"), ({"streams": ["x"]}, "streams"), ({"rate": 0}, "rate"), ({"bogus": 1}, "bogus")],
)
def test_an_edit_that_cannot_be_changes_nothing(api: AskedApi, fields: dict[str, Any], field: str) -> None:
    job_id = created(api, {"kind": "load", **LEAST[JobKind.LOAD]})
    before = api("GET", f"/v1/jobs/{job_id}").body
    assert is_problem(api("PATCH", f"/v1/jobs/{job_id}", fields), 400, "invalid-query", field)
    assert api("GET", f"/v1/jobs/{job_id}").body == before


def test_a_field_that_other_kinds_change_is_a_conflict(api: AskedApi) -> None:
    reply = api("PATCH", f"/v1/jobs/{created(api)}", {"rate": 5.0})
    assert is_problem(reply, 409, "job-state")
    assert "is a scrub job, whose rate cannot be edited" in reply.body["detail"]


def test_a_condition_of_an_erasure_that_cannot_be_is_the_clients_fault(api: AskedApi) -> None:
    spec = {"kind": "erase", "stream": "orders", "reason": "x", "properties": ["no_such_field=x"]}
    assert is_problem(api("POST", "/v1/jobs", spec), 400, "invalid-query", "properties.0")


def test_only_a_job_that_has_ended_is_deleted(api: AskedApi) -> None:
    job_id = created(api)
    assert is_problem(api("DELETE", f"/v1/jobs/{job_id}"), 409, "job-state")
    api("POST", f"/v1/jobs/{job_id}/cancel")
    reply = api("DELETE", f"/v1/jobs/{job_id}")
    assert (reply.status, reply.body) == (204, None)
    assert is_problem(api("GET", f"/v1/jobs/{job_id}"), 404, "job-not-found")


def test_what_takes_no_body_refuses_one(api: AskedApi) -> None:
    job_id = created(api)
    assert is_problem(api("POST", f"/v1/jobs/{job_id}/pause", {"force": True}), 400, "invalid-query", "body")
    assert is_problem(api("DELETE", f"/v1/jobs/{job_id}", {"force": True}), 400, "invalid-query", "body")
    assert api.served.jobs.get(job_id).state is JobState.CREATED


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/log"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
    ],
)
@pytest.mark.parametrize("job_id", [UNKNOWN, "x", "%C3%BC", "%00", "a%0Ab", "x" * 255])
def test_an_unknown_job_is_a_problem_of_its_own(api: AskedApi, method: str, path: str, job_id: str) -> None:
    reply = api(method, f"/v1/jobs/{job_id}{path}")
    assert reply.status == 404
    # A name that no path may have is of no route.
    assert reply.body["type"].rpartition(":")[2] in {"job-not-found", "route-not-found"}


def test_an_edit_of_an_unknown_job_is_a_problem_of_its_own(api: AskedApi) -> None:
    assert is_problem(api("PATCH", f"/v1/jobs/{UNKNOWN}", {"name": "x"}), 404, "job-not-found")


def test_the_log_is_read_on_from_where_it_was(api: AskedApi) -> None:
    job_id = created(api)
    first = api("GET", f"/v1/jobs/{job_id}/log").body
    assert [line["text"] for line in first["lines"]] == ["created by the HTTP API"]
    api("POST", f"/v1/jobs/{job_id}/pause")
    more = api("GET", f"/v1/jobs/{job_id}/log?after={first['after']}").body
    assert [line["text"] for line in more["lines"]] == ["pause, by the HTTP API"]
    again = api("GET", f"/v1/jobs/{job_id}/log?after={more['after']}").body
    assert again == {"lines": [], "after": more["after"]}


def test_a_preview_creates_nothing(api: AskedApi) -> None:
    api.archive.add("orders", 12)
    reply = api("POST", "/v1/jobs/preview", {"kind": "load", **LEAST[JobKind.LOAD]})
    assert reply.status == 200
    assert (reply.body["messages"], reply.body["matched_streams"]) == (120, 1)
    assert api("GET", "/v1/jobs").body["jobs"] == []


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("PUT", "/v1/jobs", "GET, POST"),
        ("GET", "/v1/jobs/x/pause", "POST"),
        ("POST", "/v1/jobs/x", "GET, PATCH, DELETE"),
        ("OPTIONS", "/v1/jobs/x/log", "GET"),
        ("HEAD", "/v1/jobs", "GET, POST"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_told_with_those_that_it_has(
    api: AskedApi, method: str, target: str, allow: str
) -> None:
    reply = api(method, target)
    assert is_problem(reply, 405, "method-not-allowed")
    assert reply.headers["allow"] == allow


@pytest.mark.parametrize("target", ["/v1", "/v1/", "/v1/job", "/v1/jobs/", "/v2/jobs", "/v1/jobs/a/b/c", "/"])
def test_an_unknown_path_is_a_problem_of_its_own(api: AskedApi, target: str) -> None:
    assert is_problem(api("GET", target), 404, "route-not-found")


def test_a_service_that_does_not_answer_is_told_without_its_words(
    api: AskedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UnavailableError("secret of the table")

    job_id = created(api)
    monkeypatch.setattr(api.archive.table, "state_item", fail)
    reply = api("GET", f"/v1/jobs/{job_id}")
    assert is_problem(reply, 503, "unavailable")
    assert reply.headers["retry-after"] == "1"
    assert "secret" not in str(reply.body)


def test_a_defect_is_told_without_its_words(api: AskedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    job_id = created(api)
    monkeypatch.setattr(api.archive.table, "state_item", fail)
    reply = api("GET", f"/v1/jobs/{job_id}")
    assert is_problem(reply, 500, "internal-error")
    assert "secret" not in str(reply.body)
