"""The console function: pages behind an HTTP API, for whoever has a token of its secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest

from coldstream.console.function_access import FunctionAccess
from coldstream.errors import InvalidSettingError
from coldstream.store.objects import S3Objects
from functions.console import app

HOST = "abc.execute-api.eu-central-1.amazonaws.com"
LINES = f"{sha256(b'secret').hexdigest()} ops rw *"


class Context:
    function_name = "console"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:console"
    aws_request_id = "request"


def asked(
    method: str, path: str, *, cookies: tuple[str, ...] = (), form: dict[str, str] | None = None
) -> dict[str, Any]:
    raw, _, query = path.partition("?")
    headers = {"host": HOST, "x-forwarded-proto": "https"}
    if form is not None:
        headers |= {"content-type": "application/x-www-form-urlencoded", "origin": f"https://{HOST}"}
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": raw,
        "rawQueryString": query,
        "cookies": list(cookies),
        "headers": headers,
        "requestContext": {
            "domainName": HOST,
            "requestId": "request",
            "stage": "$default",
            "http": {"method": method, "path": raw, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1", "userAgent": "x"},
        },
        "body": "" if form is None else urlencode(form),
        "isBase64Encoded": False,
    }
    return app.lambda_handler(event, Context())  # type: ignore[arg-type]  # the few fields that are read


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch, aws: str, table_name: str, s3_objects: S3Objects) -> Iterator[str]:
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)
    monkeypatch.setenv("COLDSTREAM_BUCKET", s3_objects.bucket)
    monkeypatch.delenv("COLDSTREAM_LOCAL", raising=False)
    name = f"console-{table_name}"
    boto3.client("secretsmanager").create_secret(Name=name, SecretString=json.dumps({"tokens": LINES, "key": "k" * 64}))
    monkeypatch.setenv("COLDSTREAM_CONSOLE_SECRET", name)
    app._made.clear()
    yield name
    app._made.clear()


def test_a_token_opens_the_pages_and_another_instance_takes_the_session(secret: str) -> None:
    assert secret
    assert asked("GET", "/streams")["statusCode"] == 303
    assert asked("POST", "/login", form={"token": "wrong"})["statusCode"] == 401
    logged = asked("POST", "/login", form={"token": "secret"})
    assert logged["statusCode"] == 303
    cookie = logged["cookies"][0].partition(";")[0] if "cookies" in logged else logged["headers"]["set-cookie"]
    cookie = cookie.partition(";")[0]
    assert cookie.startswith("__Host-coldstream-session=")
    app._made.clear()
    page = asked("GET", "/streams?sort=name", cookies=(cookie,))
    assert page["statusCode"] == 200
    assert "Nothing is archived yet" in page["body"]
    made = asked("POST", "/jobs/new", cookies=(cookie,), form={"kind": "scrub", "step": "create"})
    assert made["statusCode"] == 303
    assert asked("GET", made["headers"]["location"], cookies=(cookie,))["statusCode"] == 200
    assert asked("GET", "/health", cookies=(cookie,))["statusCode"] == 200


def test_without_tokens_there_are_no_pages(secret: str) -> None:
    content = json.dumps({"tokens": "", "key": "k" * 64})
    boto3.client("secretsmanager").put_secret_value(SecretId=secret, SecretString=content)
    for path in ("/streams", "/login", "/static/x/y", "/healthz"):
        assert asked("GET", path)["statusCode"] == 503


@pytest.mark.parametrize(
    ("environment", "content"),
    [
        ({}, "{}"),
        ({"COLDSTREAM_CONSOLE_SECRET": "s"}, "{}"),
        ({"COLDSTREAM_CONSOLE_SECRET": "s"}, "no JSON secret-part"),
        ({"COLDSTREAM_CONSOLE_SECRET": "s"}, '{"tokens": "", "key": "0123456789abcdef"}'),
        ({"COLDSTREAM_CONSOLE_SECRET": "s"}, '{"tokens": "secret-part", "key": "0123456789abcdef"}'),
        ({"COLDSTREAM_CONSOLE_SECRET": "s"}, json.dumps({"tokens": LINES, "key": "short"})),
    ],
    ids=str,
)
def test_a_secret_that_opens_nothing_is_refused_and_not_shown(environment: dict[str, str], content: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        FunctionAccess.read(environment, lambda _: content)
    assert "secret-part" not in str(refused.value)


def test_on_a_laptop_nobody_needs_a_token_unless_there_are_some() -> None:
    local = {"COLDSTREAM_LOCAL": "true"}
    assert FunctionAccess.read(local, lambda _: "").tokens is None
    named = {**local, "COLDSTREAM_CONSOLE_SECRET": "s"}
    content = json.dumps({"tokens": LINES, "key": "k" * 64})
    assert FunctionAccess.read(named, lambda _: content).tokens is not None
