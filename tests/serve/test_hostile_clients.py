"""Clients that mean harm: names, bodies, heads, pages and patience that a server must not fall for."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import ASGIApp

from coldstream.errors import CorruptionError, InvalidSettingError
from coldstream.serve import app as app_module
from coldstream.serve.options import ServeOptions
from coldstream.serve.protocol.json_messages import split_messages
from coldstream.serve.protocol.stream_name import name_of_path
from coldstream.web.request_limits import RequestLimits
from tests.support.serving import asgi_client, hosting, memory_archive, served, tokens

TEXT = {"Content-Type": "text/plain"}
OPTIONS = ServeOptions(max_body_bytes=1000, requests_per_s=0)
PATIENCE_S = 60


@asynccontextmanager
async def small_bodies() -> AsyncIterator[ASGIApp]:
    async with hosting(memory_archive(), OPTIONS) as (_, app):
        yield app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(small_bodies) as found:
        yield found


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)


def answer_of(url: str, request: bytes) -> bytes:
    """Send bytes as they are, and return what comes until the connection ends."""
    with connected(url) as client:
        client.sendall(request)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    "path",
    ["a%00b", "a%0Db", "%7F", "a%C2%85", "..", "%2e%2e", "a/../b", "a%2f..%2fb", "a/./b", "%ff", "%C3%28", "n" * 256],
)
def test_a_name_that_somebody_on_the_way_could_take_for_another_is_refused(url: str, path: str) -> None:
    raw = f"GET /v1/stream/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert answer_of(url, raw.encode()).startswith(b"HTTP/1.1 400 ")


def test_names_are_the_same_if_their_bytes_are_and_only_then() -> None:
    assert name_of_path("/v1/stream/a%2Fb") == name_of_path("/v1/stream/a/b") == "a/b"
    assert name_of_path("/v1/stream/%C3%A9") == "\u00e9"
    assert name_of_path("/v1/stream/e%CC%81") == "e\u0301"
    assert name_of_path("/v1/stream/100%25") == "100%"
    assert name_of_path("/v1/stream/" + "n" * 255) == "n" * 255
    assert [name_of_path(path) for path in ("/v1/stream/", "/v1/stream", "/v1/str%65am/a", "/")] == [None] * 4


@pytest.mark.parametrize("length", [b"Content-Length: 1001\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_beyond_the_limit_is_refused_before_its_end(url: str, length: bytes) -> None:
    httpx.put(f"{url}/v1/stream/notes", headers=TEXT)
    head = b"POST /v1/stream/notes HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + length + b"\r\n"
    chunk = b"3e9\r\n" + b"x" * 1001 + b"\r\n"  # and never the last one
    with connected(url) as client:
        client.sendall(head + (chunk if b"chunked" in length else b""))
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert httpx.post(f"{url}/v1/stream/notes", headers=TEXT, content=b"x" * 1000).status_code == 204


def test_a_body_that_does_not_come_is_given_up() -> None:
    @asynccontextmanager
    async def impatient() -> AsyncIterator[ASGIApp]:
        async with hosting(memory_archive(), replace(OPTIONS, body_within_s=0.05)) as (_, app):
            yield app

    with served(impatient) as url, connected(url) as client:
        client.sendall(b"PUT /v1/stream/notes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        assert client.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_made_up_methods_are_counted_as_one(url: str) -> None:
    for method in ("X1", "X2"):
        answer_of(url, f"{method} /v1/stream/notes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    shown = httpx.get(f"{url}/metrics").text
    assert 'coldstream_serve_requests_total{method="other",status="405"} 2' in shown
    assert "X1" not in shown


async def asked(method: str, path: str, options: ServeOptions = OPTIONS, **headers: str) -> httpx.Response:
    async with hosting(memory_archive(), options) as (_, app), asgi_client(app) as client:
        await client.put("/v1/stream/notes", headers=TEXT, content=b"a")
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.request(method, path, headers={**TEXT, **sent}, content=b"x" if method == "POST" else b"")


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_a_page_of_another_origin_cannot_write(method: str) -> None:
    answer = asyncio.run(asked(method, "/v1/stream/notes", Origin="https://evil.example"))
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:coldstream:problem:foreign-page")


def test_a_page_of_the_servers_own_or_of_a_permitted_origin_can_write() -> None:
    permitted = replace(OPTIONS, cors_origins=("https://app.example",))
    for options, origin in ((OPTIONS, "http://localhost"), (permitted, "https://app.example")):
        assert asyncio.run(asked("POST", "/v1/stream/notes", options, Origin=origin)).status_code == 204


@pytest.mark.parametrize("path", ["/v1/stream/notes", "/metrics"])
def test_a_page_whose_name_resolves_to_this_machine_is_refused(path: str) -> None:
    assert asyncio.run(asked("GET", path, Host="evil.example:8390")).status_code == 421
    assert asyncio.run(asked("GET", path, Host="127.0.0.1.evil.example")).status_code == 421
    for host in ("localhost:8390", "127.0.0.1:8390", "[::1]:8390", "127.9.9.9"):
        assert asyncio.run(asked("GET", path, Host=host)).status_code == 200
    named = replace(OPTIONS, host_names=("streams.example",))
    assert asyncio.run(asked("GET", path, named, Host="streams.example:443")).status_code == 200


def test_cors_is_off_unless_an_origin_is_named_and_then_for_that_one_alone() -> None:
    off = asyncio.run(asked("GET", "/v1/stream/notes", Origin="https://app.example"))
    assert not [name for name in off.headers if name.startswith("access-control")]
    assert off.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    on = replace(OPTIONS, cors_origins=("https://app.example",))
    named = asyncio.run(asked("GET", "/v1/stream/notes", on, Origin="https://app.example"))
    assert named.headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert "Access-Control-Allow-Credentials" not in named.headers
    other = asyncio.run(asked("GET", "/v1/stream/notes", on, Origin="https://app.example.evil.example"))
    assert "Access-Control-Allow-Origin" not in other.headers


@pytest.mark.parametrize("origin", ["null", "https://app.example/", "app.example", "https://*.example", ""])
def test_an_origin_that_no_browser_sends_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(InvalidSettingError):
        ServeOptions(cors_origins=(origin,))


def test_what_is_read_cannot_act_as_a_page_of_the_server() -> None:
    answer = asyncio.run(asked("GET", "/v1/stream/notes"))
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_wrong_token_is_counted_by_its_address() -> None:
    async def run() -> list[int]:
        options = replace(OPTIONS, requests_per_s=3)
        async with hosting(memory_archive(), options, tokens("one app rw *")) as (_, app), asgi_client(app) as client:
            wrong = {"Authorization": "Bearer guess"}
            codes = [(await client.get("/v1/stream/notes", headers=wrong)).status_code for _ in range(3)]
            last = await client.get("/v1/stream/notes", headers=wrong)
            right = await client.get("/v1/stream/notes", headers={"Authorization": "Bearer one"})
            return [*codes, last.status_code, right.status_code]

    assert asyncio.run(run())[:3] == [401] * 3
    assert asyncio.run(run())[-1] == 404


def test_a_caller_without_rights_does_not_learn_whether_a_stream_is_there() -> None:
    async def run() -> None:
        known = tokens("one app r mine", "two owner rw *")
        async with hosting(memory_archive(), OPTIONS, known) as (_, app), asgi_client(app) as client:
            await client.put("/v1/stream/theirs", headers={**TEXT, "Authorization": "Bearer two"})
            sent = {"Authorization": "Bearer one"}
            there, nowhere = [await client.get(f"/v1/stream/{name}", headers=sent) for name in ("theirs", "nowhere")]
            assert there.status_code == nowhere.status_code == 403
            fork = {"Authorization": "Bearer two", "Stream-Forked-From": "/v1/stream/theirs"}
            assert (await client.put("/v1/stream/copy", headers=fork)).status_code == 201

    asyncio.run(run())


def test_who_may_not_read_a_stream_cannot_fork_it() -> None:
    async def run() -> None:
        known = tokens("one app rw mine/*", "two owner rw *")
        async with hosting(memory_archive(), OPTIONS, known) as (_, app), asgi_client(app) as client:
            await client.put("/v1/stream/theirs", headers={**TEXT, "Authorization": "Bearer two"}, content=b"secret")
            for source in ("/v1/stream/theirs", "/v1/stream/%74heirs", "http://other.example/v1/stream/theirs"):
                fork = {"Authorization": "Bearer one", "Stream-Forked-From": source}
                assert (await client.put("/v1/stream/mine/copy", headers=fork)).status_code == 403

    asyncio.run(run())


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_an_error_of_the_server_tells_nothing_of_its_insides(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise CorruptionError("s3://bucket/secret-key", 7, "bad CRC")

    async def run() -> None:
        archive = memory_archive()
        async with hosting(archive, OPTIONS) as (_, app), asgi_client(app) as client:
            with monkeypatch.context() as patch:
                patch.setattr(archive.table, "state_item", fail)
                answer = await client.request(method, "/v1/stream/notes", headers=TEXT, content=b"x")
            assert answer.status_code == 500
            assert "secret" not in answer.text

    asyncio.run(run())
    assert "secret-key" in str([vars(record) for record in caplog.records])


@pytest.mark.parametrize("path", ["%E2%82%AC", "%C3%A9", "a%20b", "100%25", "a%3Fb", "a%2Fb"])
def test_a_location_is_the_address_that_the_stream_was_created_at(path: str) -> None:
    answer = asyncio.run(asked("PUT", f"/v1/stream/{path}?x=1"))
    assert (answer.status_code, answer.headers["Location"]) == (201, f"http://localhost/v1/stream/{path}")


def test_no_cache_shows_as_now_what_came_earlier() -> None:
    async def run() -> None:
        async with hosting(memory_archive(), OPTIONS) as (_, app), asgi_client(app) as client:
            await client.put("/v1/stream/notes", headers=TEXT)
            waiting = asyncio.ensure_future(client.get("/v1/stream/notes?offset=now&live=long-poll"))
            while "live_reads 1" not in (await client.get("/metrics")).text:  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0)
            await client.post("/v1/stream/notes", headers={**TEXT, "Stream-Closed": "true"}, content=b"last")
            assert (await waiting).headers["Cache-Control"] == "no-store"

    asyncio.run(run())


def test_a_body_of_too_many_values_is_not_taken_apart_to_its_end() -> None:
    assert len(split_messages(b"[" + b"0," * 1000 + b"0]", 10)) == 10


@pytest.mark.parametrize("query", ["", "?offset=-1&live=long-poll", "?offset=-1&live=sse"])
def test_a_page_counts_as_unread_until_its_client_has_read_it_or_left(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RequestLimits] = []
    monkeypatch.setattr(app_module, "RequestLimits", lambda *options: made.append(RequestLimits(*options)) or made[-1])

    @asynccontextmanager
    async def large_page() -> AsyncIterator[ASGIApp]:
        async with hosting(memory_archive(), ServeOptions()) as (_, app):
            async with asgi_client(app) as client:
                await client.put("/v1/stream/large", headers=TEXT, content=b"x" * (8 << 20))
            yield app

    with served(large_page) as url:
        parts = urlsplit(url)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the system would take the page for it
            client.connect((parts.hostname, parts.port))
            client.sendall(f"GET /v1/stream/large{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(15) == b"HTTP/1.1 200 OK"
            while made[0].unread_bytes < 8 << 20:
                time.sleep(0.01)
        while made[0].unread_bytes:
            time.sleep(0.01)
        made[0].unread_bytes = 1 << 40
        with httpx.stream("GET", f"{url}/v1/stream/large{query}") as answer:
            assert answer.status_code == (200 if "sse" in query else 503)
            assert len(answer.read()) < 1000
