"""What each kind of fault makes of an answer, and requests as they are on the wire."""

from __future__ import annotations

from zlib import crc32

import pytest

from tests.faults.fault_kinds import Ending, FaultKind, misbehave
from tests.faults.http_messages import HttpAnswer, HttpRequest, answer, parsed

GET_OBJECT = HttpRequest("GET", "/bucket/a/key", {"host": "here"}, b"")
GET_ITEM = HttpRequest("POST", "/", {"x-amz-target": "DynamoDB_20120810.GetItem"}, b'{"ConsistentRead": true}')
QUERY = HttpRequest("POST", "/", {"x-amz-target": "DynamoDB_20120810.Query"}, b"{}")
BODY = b"the body"
FOUND = answer("200 OK", BODY, ("x-amz-crc32", str(crc32(BODY))), ("x-amz-checksum-crc32", "AAAAAA=="))
EARLIER = answer("200 OK", b"what was before")


class Carried:
    """Carries requests out, and counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> HttpAnswer:
        self.times += 1
        return FOUND


def struck(kind: FaultKind, request: HttpRequest = GET_OBJECT, number: int = 1) -> tuple[bytes, Ending, int]:
    carried = Carried()
    found = misbehave(kind, request, carried, number=number, earlier=EARLIER)
    return found.data, found.ending, carried.times


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (FaultKind.ERROR_500, b"500", b"InternalError"),
        (FaultKind.SLOW_DOWN_503, b"503", b"SlowDown"),
        (FaultKind.DENIED, b"403", b"AccessDenied"),
        (FaultKind.REDIRECT, b"307", b"Location: http://127.0.0.1:1/"),
        (FaultKind.PROXY_PAGE, b"200", b"text/html"),
    ],
)
def test_a_refused_request_is_not_carried_out(kind, status, code):
    data, ending, times = struck(kind)
    assert data.startswith(b"HTTP/1.1 " + status)
    assert code in data
    assert (ending, times) == (Ending.OPEN, 0)


def test_dynamodb_refuses_in_its_own_form():
    data, _, _ = struck(FaultKind.SLOW_DOWN_503, GET_ITEM)
    assert b"ThrottlingException" in data
    assert b"x-amz-crc32" in data


def test_nobody_answers_before_or_after_it_was_carried_out():
    assert struck(FaultKind.TIMEOUT_BEFORE) == (b"", Ending.SILENT, 0)
    assert struck(FaultKind.TIMEOUT_AFTER) == (b"", Ending.SILENT, 1)
    assert struck(FaultKind.RESET, number=1) == (b"", Ending.BROKEN, 0)
    assert struck(FaultKind.RESET, number=2) == (b"", Ending.BROKEN, 1)


def test_a_cut_answer_ends_within_its_body():
    data, ending, times = struck(FaultKind.CUT)
    assert FOUND.to_bytes().startswith(data)
    assert data.endswith(b"\r\n\r\n" + BODY[: len(BODY) // 2])
    assert (ending, times) == (Ending.CLOSED, 1)


@pytest.mark.parametrize("request_", [GET_OBJECT, GET_ITEM])
def test_one_bit_is_another_where_a_checksum_tells(request_):
    data, _, _ = struck(FaultKind.WRONG_BYTES, request_)
    body = data.partition(b"\r\n\r\n")[2]
    assert sum(one != other for one, other in zip(body, BODY, strict=True)) == 1
    listing = HttpRequest("GET", "/bucket?list-type=2", {}, b"")
    assert struck(FaultKind.WRONG_BYTES, listing)[0] == FOUND.to_bytes()


def test_the_length_is_less_and_the_rest_is_missing():
    data, _, _ = struck(FaultKind.WRONG_LENGTH)
    assert b"Content-Length: 7" in data or b"content-length: 7" in data
    assert data.endswith(BODY[:-1])


def test_checksums_are_others():
    data, _, _ = struck(FaultKind.WRONG_CHECKSUM)
    assert data.endswith(BODY)
    assert f"x-amz-crc32: {crc32(BODY)}".encode() not in data
    assert b"x-amz-checksum-crc32: BAAAAA==" in data


def test_an_answer_is_stale_where_aws_may_give_one():
    assert struck(FaultKind.STALE, QUERY) == (EARLIER.to_bytes(), Ending.OPEN, 1)
    for request in (GET_ITEM, GET_OBJECT):
        assert struck(FaultKind.STALE, request) == (FOUND.to_bytes(), Ending.OPEN, 1)


def test_a_slow_answer_comes_byte_by_byte():
    found = misbehave(FaultKind.SLOW, GET_OBJECT, Carried(), number=0, earlier=None)
    assert (found.data, found.piece_bytes) == (FOUND.to_bytes(), 1)


def test_a_request_is_read_once_it_is_whole():
    data = b"PUT /a HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nabc"
    for length in range(len(data)):
        assert parsed(data[:length]) is None
    assert parsed(data) == HttpRequest("PUT", "/a", {"host": "b", "content-length": "3"}, b"abc")


def test_chunks_are_joined():
    data = b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    assert parsed(data) == HttpRequest("PUT", "/a", {}, b"abcde")
    assert parsed(data[:-12]) is None
