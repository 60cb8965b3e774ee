"""The API function on an archive in memory, asked as API Gateway asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coldstream.api import serving
from coldstream.api.job_rights import JobRights
from coldstream.api.serving import ServedArchive
from coldstream.local.http_api import http_event, http_response
from coldstream.local.http_exchange import Request
from coldstream.resolve.permissions import Permissions
from coldstream.runtime import audit
from functions.api import app
from tests.support.previewing import SeveralStreams, at_hour

PROBLEM = "application/problem+json"
NOW = at_hour(1000)


@dataclass
class ApiContext:
    function_name = "api"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:api"
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"


@dataclass(frozen=True)
class ApiReply:
    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class AskedApi:
    """The function; `authorizer` is what API Gateway says of the caller, None if it says nothing."""

    archive: SeveralStreams = field(default_factory=SeveralStreams)
    authorizer: dict[str, Any] | None = None
    served: ServedArchive = field(init=False)

    def __post_init__(self) -> None:
        self.served = ServedArchive(
            self.archive.table, self.archive.objects, Permissions(), JobRights(admits_unknown=True), lambda: NOW
        )

    def permit(self, permissions: Permissions, rights: JobRights) -> None:
        self.served = replace(self.served, permissions=permissions, rights=rights)

    def invoke(self, event: dict[str, Any]) -> Any:
        if self.authorizer is not None:
            event["requestContext"]["authorizer"] = self.authorizer
        return app.lambda_handler(event, ApiContext())

    def __call__(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiReply:
        """Send a request, with a body of JSON or a raw one."""
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json"} if sent else {}
        request = Request(method, target, tuple((given | dict(headers or {})).items()), sent, "127.0.0.1")
        answer = http_response(self.invoke(http_event(request)))
        content = json.loads(answer.body) if answer.body else None
        return ApiReply(answer.status, content, {name.lower(): value for name, value in answer.headers})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> AskedApi:
    asked = AskedApi()
    monkeypatch.setattr(serving, "served", lambda: asked.served)
    return asked


@contextmanager
def audit_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Collect the audit lines that are written in the block."""
    lines: list[dict[str, Any]] = []
    with monkeypatch.context() as patch:
        patch.setattr(audit.logger, "info", lambda message, **fields: lines.append({"message": message, **fields}))
        yield lines


def bearer(scope: str) -> dict[str, Any]:
    """Return the authorizer's words on the bearer of a token."""
    return {"jwt": {"claims": {"sub": "alice", "iss": "https://issuer.example", "scope": scope}, "scopes": None}}


def signed_by(arn: str) -> dict[str, Any]:
    """Return the authorizer's words on a principal of IAM."""
    return {"iam": {"userArn": arn}}
