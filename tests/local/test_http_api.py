from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coldstream.local.forwarding import Forwards
from coldstream.local.function_protocol import InvocationReport
from coldstream.local.http_api import NO_FORWARDS, HttpApi, http_event, http_response
from coldstream.local.http_exchange import FAILED, Request

Invoke = Callable[[dict[str, Any]], Any]


def request(target: str = "/", *, method: str = "GET", body: bytes = b"", **headers: str) -> Request:
    return Request(method, target, tuple(headers.items()), body, "127.0.0.1")


def test_the_path_is_decoded_and_the_query_string_is_as_it_was_sent() -> None:
    event = http_event(request("/a%20b/%C3%BC?name=%C3%BC%2Cx&vhost=%2F"))
    assert event["rawPath"] == event["requestContext"]["http"]["path"] == "/a b/ü"
    assert event["rawQueryString"] == "name=%C3%BC%2Cx&vhost=%2F"
    assert event["queryStringParameters"] == {"name": "ü,x", "vhost": "/"}


def test_parameters_of_one_name_are_joined_and_empty_ones_kept() -> None:
    assert http_event(request("/?a=1&b=&a=2+3"))["queryStringParameters"] == {"a": "1,2 3", "b": ""}


def test_a_request_without_query_string_has_no_parameters() -> None:
    event = http_event(request("/streams"))
    assert event["rawQueryString"] == ""
    assert "queryStringParameters" not in event


def test_header_names_are_in_lower_case_and_equal_ones_joined() -> None:
    headers = (("Accept", "a"), ("X-Thing", "1"), ("accept", "b"))
    assert http_event(Request("GET", "/", headers, b"", "::1"))["headers"] == {
        "accept": "a,b",
        "x-thing": "1",
        "x-forwarded-proto": "http",
    }


def test_a_body_of_text_is_text_and_any_other_base64() -> None:
    text = http_event(Request("POST", "/", (("content-type", "application/json"),), b'{"a":1}', "::1"))
    assert (text["body"], text["isBase64Encoded"]) == ('{"a":1}', False)
    binary = http_event(request(method="POST", body=b"\x00\xff"))
    assert (binary["body"], binary["isBase64Encoded"]) == ("AP8=", True)


def test_a_body_that_only_says_that_it_is_text_is_handed_on() -> None:
    event = http_event(request(method="POST", body=b"\xff", **{"content-type": "application/json"}))
    assert event["body"] == "\N{REPLACEMENT CHARACTER}"


def test_a_response_has_its_status_headers_cookies_and_body() -> None:
    response = http_response({"statusCode": 404, "headers": {"X-A": "1"}, "cookies": ["c=1", "d=2"], "body": "ü"})
    assert response.status == 404
    assert response.body == "ü".encode()
    assert response.headers[:3] == (("X-A", "1"), ("set-cookie", "c=1"), ("set-cookie", "d=2"))


def test_a_response_in_base64_is_decoded() -> None:
    assert http_response({"statusCode": 200, "isBase64Encoded": True, "body": "AP8="}).body == b"\x00\xff"


def test_what_is_no_response_is_sent_as_json() -> None:
    response = http_response({"answer": 42})
    assert (response.status, response.body) == (200, b'{"answer": 42}')


@pytest.mark.parametrize(
    "result",
    [
        {"statusCode": "two hundred"},
        {"statusCode": 200, "body": {"not": "text"}},
        {"statusCode": 200, "isBase64Encoded": True, "body": "!"},
        {object()},
    ],
)
def test_a_response_that_makes_no_sense_is_an_internal_error(result: Any) -> None:
    assert http_response(result) == FAILED


@contextmanager
def serving(invoke: Invoke, handled: list[InvocationReport], forwards: Forwards = NO_FORWARDS) -> Iterator[HttpApi]:
    api = HttpApi(0, function="Api", invoke=invoke, report=handled.append, forwards=forwards)
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        api.shutdown()
        api.server_close()
        thread.join()


def ask(api: HttpApi, *requests: tuple[str, str, bytes]) -> list[tuple[int, bytes]]:
    """Send requests over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", api.server_address[1], timeout=10)
    answers = []
    for method, target, body in requests:
        connection.request(method, target, body=body)
        response = connection.getresponse()
        answers.append((response.status, response.read()))
    connection.close()
    return answers


def test_requests_of_any_method_over_one_connection_reach_the_handler() -> None:
    def invoke(event: dict[str, Any]) -> Any:
        told = {"method": event["requestContext"]["http"]["method"], "path": event["rawPath"]}
        return {"statusCode": 200, "body": json.dumps(told)}

    handled: list[InvocationReport] = []
    with serving(invoke, handled) as api:
        answers = ask(api, ("GET", "/a?b=c", b""), ("PATCH", "/d", b"body"), ("HEAD", "/e", b""))
    assert [status for status, _ in answers] == [200, 200, 200]
    assert json.loads(answers[0][1]) == {"method": "GET", "path": "/a"}
    assert json.loads(answers[1][1]) == {"method": "PATCH", "path": "/d"}
    assert answers[2][1] == b""
    assert [each.event for each in handled] == ["GET /a?b=c 200", "PATCH /d 200", "HEAD /e 200"]


def test_a_handler_that_fails_is_an_internal_error_and_the_next_request_is_answered() -> None:
    outcomes: list[Any] = [ValueError("no"), {"statusCode": 204}]

    def invoke(event: dict[str, Any]) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    handled: list[InvocationReport] = []
    with serving(invoke, handled) as api:
        answers = ask(api, ("GET", "/", b""), ("GET", "/", b""))
    assert answers[0] == (500, FAILED.body)
    assert answers[1][0] == 204
    assert [each.error for each in handled] == ["ValueError: no", None]


def test_a_body_over_the_quota_is_refused_unread() -> None:
    with serving(lambda _: {"statusCode": 200}, []) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.server_address[1], timeout=10)
        connection.putrequest("POST", "/")
        connection.putheader("content-length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
