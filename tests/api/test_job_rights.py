"""Who may do what with jobs, and what the audit keeps of it."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.api.job_rights import JobRight, JobRights
from coldstream.errors import NotPermittedError
from coldstream.jobs.specs import parse_spec
from coldstream.resolve.caller import Authentication, Caller
from coldstream.resolve.permissions import Permissions
from tests.support.asked_api import AskedApi, audit_lines, bearer, signed_by

SCRUB = {"kind": "scrub"}
OPERATOR = "arn:aws:iam::123456789012:user/ann"
READS = [("GET", "/v1/jobs"), ("GET", "/v1/jobs/{id}"), ("GET", "/v1/jobs/{id}/log"), ("POST", "/v1/jobs/preview")]
WRITES = [
    ("POST", "/v1/jobs"),
    ("PATCH", "/v1/jobs/{id}"),
    ("POST", "/v1/jobs/{id}/pause"),
    ("POST", "/v1/jobs/{id}/resume"),
    ("POST", "/v1/jobs/{id}/cancel"),
    ("DELETE", "/v1/jobs/{id}"),
]
BODIES: dict[str, Any] = {"/v1/jobs": SCRUB, "/v1/jobs/preview": SCRUB, "/v1/jobs/{id}": {"name": "x"}}


@pytest.fixture
def strict(api: AskedApi) -> AskedApi:
    api.permit(Permissions(), JobRights())
    return api


def asked(api: AskedApi, method: str, target: str) -> int:
    job_id = api.served.jobs.create_once(parse_spec(SCRUB)).job.id
    body = BODIES.get(target) if method in {"POST", "PATCH"} else None
    return api(method, target.replace("{id}", job_id), body).status


@pytest.mark.parametrize(("method", "target"), READS)
def test_the_right_to_read_reads(strict: AskedApi, method: str, target: str) -> None:
    for scope in ("coldstream.jobs:read", "openid coldstream.jobs:write"):
        strict.authorizer = bearer(scope)
        assert asked(strict, method, target) == 200


@pytest.mark.parametrize(("method", "target"), WRITES)
def test_only_the_right_to_write_changes(strict: AskedApi, method: str, target: str) -> None:
    strict.authorizer = bearer("coldstream.jobs:read coldstream.read:*/*")
    assert asked(strict, method, target) == 403
    strict.authorizer = bearer("coldstream.jobs:write")
    assert asked(strict, method, target) in {200, 201, 204, 409}  # 409: one that was not paused cannot be resumed


@pytest.mark.parametrize(("method", "target"), READS + WRITES)
@pytest.mark.parametrize(
    "authorizer", [None, bearer(""), bearer("coldstream.read:*/*"), bearer("jobs:write"), {"iam": {}}]
)
def test_whoever_has_no_right_is_refused_and_changes_nothing(
    strict: AskedApi, authorizer: dict[str, Any] | None, method: str, target: str
) -> None:
    strict.authorizer = authorizer
    assert asked(strict, method, target) == 403
    (job,) = strict.served.jobs.page().jobs
    assert job.revision == 1


@pytest.mark.parametrize("target", ["/v1/jobs/{id}", "/v1/jobs/{id}/log"])
def test_who_may_not_is_refused_alike_whether_or_not_there_is_such_a_job(strict: AskedApi, target: str) -> None:
    strict.authorizer = bearer("")
    job_id = strict.served.jobs.create(parse_spec(SCRUB)).id
    one, other = (strict("GET", target.replace("{id}", name)) for name in (job_id, "0000000000-aaaaaa"))
    assert (one.status, one.body) == (other.status, other.body)


def test_a_principal_of_iam_has_passed_its_policies(strict: AskedApi) -> None:
    strict.authorizer = signed_by(OPERATOR)
    reply = strict("POST", "/v1/jobs", SCRUB)
    assert (reply.status, reply.body["by"]) == (201, OPERATOR)


def test_without_the_check_every_token_that_the_api_admits_may_do_all() -> None:
    token = Caller(Authentication.TOKEN, "alice", "i", {"scope": ""})
    JobRights(scope_claim=None).check(token, JobRight.WRITE)
    with pytest.raises(NotPermittedError, match=r"coldstream\.jobs:write"):
        JobRights().check(token, JobRight.WRITE)


def test_the_scopes_are_in_the_claim_that_the_settings_name() -> None:
    token = Caller(Authentication.TOKEN, "alice", "i", {"scope": "x", "roles": "[a coldstream.jobs:write]"})
    JobRights(scope_claim="roles").check(token, JobRight.WRITE)


def test_a_change_is_audited_with_who_did_it_and_what(strict: AskedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    strict.authorizer = bearer("coldstream.jobs:write")
    spec = {"kind": "erase", "stream": "orders", "key": "customer-4711", "reason": "ticket 1"}
    with audit_lines(monkeypatch) as lines:
        job_id = strict("POST", "/v1/jobs", spec).body["id"]
        strict("PATCH", f"/v1/jobs/{job_id}", {"name": "x"})
        strict("POST", f"/v1/jobs/{job_id}/cancel")
        strict("DELETE", f"/v1/jobs/{job_id}")
    assert [(line["message"], line["operation"], line["status"]) for line in lines] == [
        ("change", "create-job", 200),
        ("change", "edit-job", 200),
        ("change", "cancel-job", 200),
        ("change", "delete-job", 200),
    ]
    assert {(line["principal"], line["proof"], line["job"]) for line in lines} == {("alice", "token", job_id)}
    assert lines[0].items() >= {"kind": "erase", "streams": ["orders"], "reason": "ticket 1", "new": True}.items()
    assert "customer-4711" not in str(lines)


@pytest.mark.parametrize(("authorizer", "status"), [(None, 403), (bearer("coldstream.jobs:write"), 404)])
def test_a_change_that_fails_is_audited_too(
    strict: AskedApi, monkeypatch: pytest.MonkeyPatch, authorizer: dict[str, Any] | None, status: int
) -> None:
    strict.authorizer = authorizer
    with audit_lines(monkeypatch) as lines:
        strict("POST", "/v1/jobs/0000000000-aaaaaa/pause")
    assert [(line["operation"], line["status"]) for line in lines] == [("pause-job", status)]
