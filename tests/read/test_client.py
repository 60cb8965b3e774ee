"""The client of the resolver's HTTP API, against servers that answer this or that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    CorruptionError,
    InvalidQueryError,
    InvalidSettingError,
    NotPermittedError,
    RouteNotFoundError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.read import http
from coldstream.read.client import ATTEMPTS, ResolverClient
from coldstream.read.reader import Reader
from coldstream.read.signing import region_of
from coldstream.resolve.answer import Bounds, Continue, RangesQuery
from coldstream.resolve.problem import problem_of
from coldstream.resolve.shard_api import ShardMapBody
from coldstream.units import Offset, TimestampMs
from tests.support.archive import ChunkArchive, steady
from tests.support.http_archive import HttpObjects, http_archive
from tests.support.written_maps import a_map, write

Answer = tuple[int, bytes]
HOSTILE = ["/", "%2F", "a?b&c=d#e", "+", "a+b c", "ü ☃", "a,b,,c", '"quotes"', ";", "..", "%", "=", "\x01\n", "~'()*"]


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(http, "MAX_DELAY_S", 0.02)
    monkeypatch.delenv("COLDSTREAM_TOKEN", raising=False)
    monkeypatch.delenv("COLDSTREAM_TOKEN_FILE", raising=False)


class Server(ThreadingHTTPServer):
    """Answers every GET with what `answer` makes of its number, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Callable[[int], Answer] = lambda _: (200, b'{"streams": [], "cursor": null}')
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        status, body = self.server.answer(len(self.server.asked))
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in http.server
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def problem(err: Exception) -> Answer:
    body = problem_of(err, instance="urn:coldstream:request:7")
    return body.status, body.to_json().encode()


@pytest.mark.parametrize("vhost", HOSTILE)
@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_any_characters_reach_the_resolver_function_as_they_are(vhost: str, name: str) -> None:
    stream = StreamId(vhost, name, Incarnation("life_1763700000000000000"))
    archive = ChunkArchive(stream, objects=HttpObjects())
    archive.add(0, steady(5, 1))
    with http_archive(archive.table, archive.objects) as where, ResolverClient(where.url) as client:
        assert client.ranges(RangesQuery(vhost, name, FIRST)).stream == stream
        assert client.describe(vhost, name).head.stream == stream
        assert client.streams().streams == (stream,)
        with pytest.raises(StreamNotFoundError):
            client.describe(vhost, name + "x")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (FIRST, {"spec": "first"}),
        (AtOffset(Offset((1 << 64) - 1)), {"offset": "18446744073709551615"}),
        (AtTimestamp(TimestampMs(-5)), {"timestamp": "-5"}),
        (Continue("abc"), {"cursor": "abc"}),
    ],
)
def test_a_query_is_sent_whole(server: Server, start: OffsetSpec | Continue, expected: dict[str, str]) -> None:
    server.answer = lambda _: problem(StreamNotFoundError("none"))
    with ResolverClient(server.url) as client, pytest.raises(StreamNotFoundError):
        client.ranges(RangesQuery("/", "orders", start, "life", Bounds(3, 4, 5), precise=True))
    path = urlsplit(server.asked[0][0])
    sent = {name: values[0] for name, values in parse_qs(path.query).items()}
    bounds = {"max_ranges": "3", "max_bytes": "4", "range_bytes": "5", "precise": "true"}
    assert sent == {"vhost": "/", "name": "orders", "incarnation": "life", **bounds, **expected}
    assert path.path == "/ranges"


def test_a_stage_in_the_url_stays(server: Server) -> None:
    ResolverClient(server.url + "/prod/").streams("after", 7)
    assert server.asked[0][0] == "/prod/streams?cursor=after&limit=7"


@pytest.mark.parametrize(
    "err",
    [
        StreamNotFoundError("no such stream"),
        InvalidQueryError("offset", "is not one"),
        CorruptionError("manifest item", 3, "sparse index"),
        ColdstreamError("something else"),
    ],
    ids=lambda err: type(err).__name__,
)
def test_the_resolvers_errors_are_raised_as_they_were_and_at_once(server: Server, err: ColdstreamError) -> None:
    server.answer = lambda _: problem(err)
    with ResolverClient(server.url) as client, pytest.raises(type(err)) as raised:
        client.streams()
    assert type(raised.value) is type(err)
    assert len(server.asked) == 1
    if isinstance(err, InvalidQueryError):
        assert str(raised.value) == str(err)
        assert raised.value.field == "offset"


@pytest.mark.parametrize(
    "failure",
    [
        problem(UnavailableError("slow down")),
        (429, b""),
        (502, b"<html>"),
        (500, b'{"message":"Internal Server Error"}'),
    ],
    ids=lambda failure: str(failure[0]),
)
def test_transient_errors_are_retried(server: Server, failure: Answer) -> None:
    server.answer = lambda number: failure if number < ATTEMPTS - 1 else (200, b'{"streams": [], "cursor": null}')
    with ResolverClient(server.url) as client:
        assert client.streams().streams == ()
    assert len(server.asked) == ATTEMPTS
    server.answer = lambda _: failure
    with ResolverClient(server.url) as client, pytest.raises(UnavailableError):
        client.streams()
    assert len(server.asked) == 2 * ATTEMPTS


@pytest.mark.parametrize("status", [401, 403])
def test_being_refused_is_access_denied_and_not_tried_again(server: Server, status: int) -> None:
    server.answer = lambda _: (status, b'{"message":"Forbidden"}')
    with ResolverClient(server.url) as client, pytest.raises(AccessDeniedError, match="Forbidden"):
        client.streams()
    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"{}"), (404, b'{"message":"Not Found"}'), (301, b"")])
def test_a_url_that_is_no_resolvers_says_so(server: Server, answer: Answer) -> None:
    server.answer = lambda _: answer
    with ResolverClient(server.url) as client, pytest.raises(InvalidSettingError) as raised:
        client.streams()
    assert raised.value.field == "resolver URL"


def test_a_resolver_that_does_not_answer_is_unavailable() -> None:
    with ResolverClient("http://127.0.0.1:1") as client, pytest.raises(UnavailableError):
        client.streams()


@pytest.mark.parametrize("url", ["", "resolver", "ftp://host", "http://", "https://host?x=1", "https://host#x"])
def test_an_impossible_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettingError):
        ResolverClient(url)


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://abc123.execute-api.eu-central-1.amazonaws.com", "eu-central-1"),
        ("https://abc123.execute-api.cn-north-1.amazonaws.com.cn/prod", "cn-north-1"),
        ("http://abc123.execute-api.eu-central-1.amazonaws.com", None),
        ("https://abc123.execute-api.eu-central-1.amazonaws.com.evil.example", None),
        ("https://archive.example.org", None),
    ],
)
def test_api_gateways_own_urls_tell_their_region(url: str, region: str | None) -> None:
    assert region_of(url) == region


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")


@pytest.mark.usefixtures("_credentials")
def test_a_signed_request_carries_the_signature_of_exactly_what_was_asked(server: Server) -> None:
    server.answer = lambda _: problem(StreamNotFoundError("none"))
    with ResolverClient(server.url, sign=True, region="eu-west-1") as client, pytest.raises(StreamNotFoundError):
        client.describe("/", "a b+c&d=ü*~")
    path, headers = server.asked[0]
    assert "/eu-west-1/execute-api/aws4_request" in headers["authorization"]
    assert headers["x-amz-security-token"] == "token"
    request = AWSRequest("GET", server.url + path)
    request.context["timestamp"] = headers["x-amz-date"]
    request.headers["X-Amz-Date"] = headers["x-amz-date"]
    request.headers["X-Amz-Security-Token"] = "token"
    auth = SigV4Auth(Credentials("AKIDEXAMPLE", "secret", "token"), "execute-api", "eu-west-1")
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_nothing_is_signed_for_a_plain_url(server: Server) -> None:
    ResolverClient(server.url).streams()
    assert "authorization" not in server.asked[0][1]


def test_signing_without_a_region_names_the_setting(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(InvalidSettingError, match="AWS_REGION"):
        ResolverClient(server.url, sign=True)


SECRET = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJyZWFkZXIifQ.c2lnbmVk"


def sent_by(server: Server, **settings: Any) -> str | None:
    """Return the header `Authorization` of a request."""
    with ResolverClient(server.url, **settings) as client:
        client.streams()
    return server.asked[-1][1].get("authorization")


def test_a_token_is_sent_as_it_is_given(server: Server) -> None:
    assert sent_by(server, token=SECRET) == f"Bearer {SECRET}"


def test_a_token_function_is_called_for_each_attempt(server: Server) -> None:
    tokens = iter(["first", "second", "third"])
    server.answer = lambda number: (503, b"") if number == 0 else (200, b'{"streams": [], "cursor": null}')
    with ResolverClient(server.url, token=lambda: next(tokens)) as client:
        client.streams()
        client.streams()
    assert [headers["authorization"] for _, headers in server.asked] == [
        "Bearer first",
        "Bearer second",
        "Bearer third",
    ]


def test_a_token_comes_from_the_environment_and_the_one_in_a_file_is_read_each_time(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLDSTREAM_TOKEN_FILE", str(tmp_path / "token"))
    for token in ("one", "two"):
        (tmp_path / "token").write_text(token + "\n")
        assert sent_by(server) == f"Bearer {token}"
    monkeypatch.setenv("COLDSTREAM_TOKEN", SECRET)
    assert sent_by(server) == f"Bearer {SECRET}"
    assert sent_by(server, token="mine") == "Bearer mine"


def test_a_reader_sends_the_token_that_it_is_given(server: Server) -> None:
    server.answer = lambda _: problem(StreamNotFoundError("none"))
    with Reader(server.url, "/", "orders", token=SECRET) as reader, pytest.raises(StreamNotFoundError):
        next(reader.chunks())
    assert server.asked[0][1]["authorization"] == f"Bearer {SECRET}"
    with ResolverClient(server.url) as client, pytest.raises(ValueError, match="a token belongs to the client"):
        Reader(client, "/", "orders", token=SECRET)


def test_a_token_takes_the_place_of_a_signature_unless_that_is_asked_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_TOKEN", SECRET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert ResolverClient("https://abc.execute-api.eu-west-1.amazonaws.com")._signer is None
    sent = sent_by(server, sign=True, region="eu-west-1")
    assert sent is not None
    assert sent.startswith("AWS4-HMAC-SHA256 ")
    with pytest.raises(InvalidSettingError, match="not both"):
        ResolverClient(server.url, sign=True, token=SECRET)


@pytest.mark.parametrize("host", ["resolver.example", "10.0.0.1", "[2001:db8::1]", "localhost.example", "0.0.0.0"])
def test_a_token_is_not_sent_over_plain_http(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ResolverClient(f"http://{host}").close()
    ResolverClient(f"https://{host}", token=SECRET).close()
    with pytest.raises(InvalidSettingError, match="plain http") as caught:
        ResolverClient(f"http://{host}", token=SECRET)
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("COLDSTREAM_TOKEN", SECRET)
    with pytest.raises(InvalidSettingError, match="plain http"):
        ResolverClient(f"http://{host}")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_token_is_sent_to_this_machine(host: str) -> None:
    ResolverClient(f"http://{host}:8380", token=SECRET).close()


@pytest.mark.parametrize("token", ["", "two words", "a\r\nX-Header: b", "Bearer x", "ü", "=", "a=b"])
def test_an_impossible_token_is_refused_and_not_shown(server: Server, token: str) -> None:
    with ResolverClient(server.url, token=token) as client, pytest.raises(InvalidSettingError, match="token") as caught:
        client.streams()
    assert not token or token not in str(caught.value).removeprefix("token: what was given, of ")
    assert not server.asked


def test_a_token_file_that_is_not_there_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLDSTREAM_TOKEN_FILE", str(tmp_path / "nothing"))
    with ResolverClient(server.url) as client, pytest.raises(InvalidSettingError, match="COLDSTREAM_TOKEN_FILE"):
        client.streams()


def test_an_api_that_needs_a_token_says_where_to_put_it(server: Server) -> None:
    server.answer = lambda _: (401, b'{"message":"Unauthorized"}')
    with ResolverClient(server.url) as client, pytest.raises(AccessDeniedError, match="set COLDSTREAM_TOKEN"):
        client.streams()


def test_a_client_loads_the_sdk_only_to_sign_requests() -> None:
    program = """
import sys
from coldstream.read.client import ResolverClient
ResolverClient("http://127.0.0.1:8380").close()
ResolverClient("https://abc.execute-api.eu-west-1.amazonaws.com", token="x").close()
print({"botocore", "awscrt", "boto3", "pynamodb"} & sys.modules.keys() or "none")
ResolverClient("https://abc.execute-api.eu-west-1.amazonaws.com").close()
print("botocore" in sys.modules)
"""
    path = str(Path(__file__).parents[2] / "layers/coldstream/python")
    environment = {"PATH": os.defpath, "PYTHONPATH": path, "HOME": os.devnull}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.split() == ["none", "True"]


def token_with(scope: str) -> str:
    claims = urlsafe_b64encode(json.dumps({"sub": "reader", "scope": scope}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2lnbmVk"


def test_a_reader_reads_what_the_scopes_of_its_token_say_and_nothing_else() -> None:
    archive = ChunkArchive(objects=HttpObjects())
    archive.add(0, steady(5, 1))
    with http_archive(archive.table, archive.objects) as where:
        with Reader(where.url, "/", "orders", token=token_with("openid coldstream.read:%2F/o*")) as reader:
            assert [message.offset for message in reader.messages()] == [0, 1, 2, 3, 4]
        for name in ("orders", "payments"):
            other = Reader(where.url, "/", name, token=token_with("coldstream.read:%2F/invoices"))
            with other as reader, pytest.raises(NotPermittedError, match=f"reading stream '{name}'"):
                next(reader.messages())
        with ResolverClient(where.url, token=token_with("coldstream.read:*/x*")) as client:
            assert client.streams().streams == ()


def test_a_shard_map_comes_back_as_it_was_written() -> None:
    archive = ChunkArchive(objects=HttpObjects())
    write(archive.table, a_map())
    with http_archive(archive.table, archive.objects) as where, ResolverClient(where.url) as client:
        assert client.shard_map("/", a_map().name) == a_map()
        assert client.shard_map("/", "orders") is None
        with pytest.raises(InvalidQueryError):
            client.shard_map("/", "")


def test_a_resolver_of_an_earlier_release_has_no_shard_maps(server: Server) -> None:
    server.answer = lambda _: problem(RouteNotFoundError("no /super"))
    with ResolverClient(server.url) as client:
        assert client.shard_map("/", "orders") is None


def test_a_shard_map_that_contradicts_itself_is_no_map(server: Server) -> None:
    body = ShardMapBody.of(a_map()).model_dump(mode="json") | {"partitions": []}
    server.answer = lambda _: (200, json.dumps(body).encode())
    with ResolverClient(server.url) as client, pytest.raises(UnavailableError, match="contradicts itself"):
        client.shard_map("/", "orders")
