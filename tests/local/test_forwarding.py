"""Requests of one API that go on to the function of their route."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from coldstream.local.forwarding import Forwards
from coldstream.local.function_protocol import InvocationReport
from coldstream.local.http_exchange import FAILED, Request
from tests.local.test_http_api import ask, serving


@pytest.mark.parametrize(
    ("target", "is_forwarded"),
    [
        ("/v1/jobs", True),
        ("/v1/jobs/a%2Fb?x=/v2/", True),
        ("/v1", False),
        ("/v1/", False),
        ("/v1?x=/v1/jobs", False),
        ("/v10/jobs", False),
        ("/", False),
    ],
)
def test_a_route_has_the_paths_below_its_prefix(target: str, *, is_forwarded: bool) -> None:
    found = Forwards({"/v1": "http://there"}).url_of(target)
    assert found == ("http://there" if is_forwarded else None)


def test_a_request_comes_there_as_it_was_sent_and_its_answer_comes_back() -> None:
    seen: list[dict[str, Any]] = []

    def invoke(event: dict[str, Any]) -> Any:
        seen.append(event)
        return {"statusCode": 201, "headers": {"location": "/v1/jobs/x"}, "cookies": ["a=b"], "body": "made"}

    handled: list[InvocationReport] = []
    with serving(invoke, handled) as api:
        headers = (("Host", "me:1"), ("Content-Type", "application/json"), ("X-Twice", "1"), ("X-Twice", "2"))
        request = Request("PATCH", "/v1/jobs/%C3%BC?a=%20b&a=c", headers, b'{"rate": 1}', "127.0.0.1")
        answer = Forwards({"/v1": api.url}).send(api.url, request)
    (event,) = seen
    assert (event["rawPath"], event["rawQueryString"]) == ("/v1/jobs/\u00fc", "a=%20b&a=c")
    assert event["headers"]["x-twice"] == "1,2"
    assert json.loads(event["body"]) == {"rate": 1}
    assert (answer.status, answer.body) == (201, b"made")
    told = {name.lower(): value for name, value in answer.headers}
    assert (told["location"], told["set-cookie"]) == ("/v1/jobs/x", "a=b")
    assert [each.event for each in handled] == ["PATCH /v1/jobs/%C3%BC?a=%20b&a=c 201"]


def test_an_api_hands_on_what_is_of_another_route_and_reports_only_its_own() -> None:
    def told(name: str) -> Any:
        return lambda _: {"statusCode": 200, "body": name}

    here: list[InvocationReport] = []
    with serving(told("v1"), []) as other, serving(told("default"), here, Forwards({"/v1": other.url})) as api:
        answers = ask(api, ("GET", "/ranges", b""), ("POST", "/v1/jobs", b"{}"), ("HEAD", "/v1/jobs", b""))
    assert answers == [(200, b"default"), (200, b"v1"), (200, b"")]
    assert [each.event for each in here] == ["GET /ranges 200"]


def test_a_function_that_is_away_is_an_internal_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert Forwards({}).send(url, Request("GET", "/v1/jobs", (), b"", "127.0.0.1")) == FAILED
