"""Clients that mean harm: names, bodies, heads, pages and patience that a server must not fall for."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import ASGIApp

from coldstream.errors import CorruptionError, InvalidSettingError
from coldstream.serve import app as app_module
from coldstream.serve import guarded_connection
from coldstream.serve.access_tokens import AccessTokens, Right
from coldstream.serve.guarded_connection import GuardedConnection
from coldstream.serve.options import ServeOptions
from coldstream.serve.protocol.json_messages import split_messages
from coldstream.serve.protocol.stream_name import name_of_path
from coldstream.serve.refusal import Refusal
from coldstream.serve.request_limits import MAX_CALLERS, RequestLimits
from coldstream.serve.server import Listening
from coldstream.terminal.json_log import JsonLogLines
from tests.support.serving import asgi_client, hosting, memory_archive, served

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


def test_bodies_of_all_requests_together_have_a_bound_and_give_it_back() -> None:
    limits = RequestLimits(0, 1, max_buffered_bytes=10)
    with limits.body() as take:
        take(6)
        with limits.body() as other, pytest.raises(Refusal) as refused:
            other(5)
        take(4)
        assert limits.buffered_bytes == 10
    assert refused.value.kind.status == 503
    assert limits.buffered_bytes == 0


def test_live_reads_have_a_bound_and_one_that_ends_makes_room() -> None:
    limits = RequestLimits(0, 1)
    for _ in range(3):
        with limits.live_read():
            with pytest.raises(Refusal) as refused, limits.live_read():
                pass
            assert limits.live_reads == 1
    assert refused.value.kind.status == 429
    assert limits.live_reads == 0


def test_who_is_counted_takes_bounded_memory() -> None:
    limits = RequestLimits(5, 1, clock=lambda: 0.0)
    for number in range(MAX_CALLERS + 100):
        limits.admit(f"address {number}")
    for _ in range(4):
        limits.admit("address x")
    limits.admit("address x")
    with pytest.raises(Refusal):
        limits.admit("address x")


def test_a_caller_that_is_too_fast_gets_as_much_as_the_limit_says() -> None:
    now = 0.0
    limits = RequestLimits(5, 1, clock=lambda: now)
    admitted = 0
    for number in range(1000):
        now = number / 10  # twice as fast
        with suppress(Refusal):
            limits.admit("address x")
            admitted += 1
    assert 500 <= admitted <= 505


def received_until_the_end(client: socket.socket) -> bytes:
    """Return what comes until the server ends the connection, in whatever way."""
    parts = []
    with suppress(ConnectionError):
        while part := client.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_whose_request_does_not_come_is_cut_off(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_connection, "HEAD_WITHIN_S", 0.05)
    with served(small_bodies) as url, connected(url) as client:
        with suppress(ConnectionError):
            client.sendall(begun)
        assert received_until_the_end(client) == b""


def test_a_connection_is_cut_off_that_sends_a_second_head_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(small_bodies) as url, connected(url) as client:
        # The first head has as long as it takes: this one's time begins with the response.
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        monkeypatch.setattr(guarded_connection, "HEAD_WITHIN_S", 0.05)
        client.sendall(b"Host: localhost\r\n\r\nG")
        assert received_until_the_end(client).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def large_pages() -> AsyncIterator[ASGIApp]:
        async with hosting(memory_archive(), ServeOptions(page_bytes=60 << 20)) as (_, app):
            async with asgi_client(app) as client:
                await client.put("/v1/stream/large", headers=TEXT)
                for _ in range(6):
                    await client.post("/v1/stream/large", headers=TEXT, content=bytes(8 << 20))
            yield app

    is_looked_at = threading.Event()
    look = GuardedConnection._abort_if_stalled

    def looked_at(connection: GuardedConnection, unread_before: int) -> None:
        look(connection, unread_before)
        is_looked_at.set()

    monkeypatch.setattr(GuardedConnection, "_abort_if_stalled", looked_at)
    monkeypatch.setattr(guarded_connection, "STALL_S", 0.05)
    with served(large_pages) as url, connected(url) as client:
        client.sendall(b"GET /v1/stream/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert is_looked_at.wait(PATIENCE_S)
        assert len(received_until_the_end(client)) < 48 << 20


def test_made_up_methods_are_counted_as_one(url: str) -> None:
    for method in ("X1", "X2"):
        answer_of(url, f"{method} /v1/stream/notes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    shown = httpx.get(f"{url}/metrics").text
    assert 'coldstream_serve_requests_total{method="other",status="405"} 2' in shown
    assert "X1" not in shown


def test_a_head_without_end_is_refused(url: str) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * (40 << 10)
    assert answer_of(url, head).startswith(b"HTTP/1.1 400 ")


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


def tokens(*lines: str) -> AccessTokens:
    return AccessTokens.parse(
        [f"{sha256(token.encode()).hexdigest()} {rest}" for token, rest in (line.split(" ", 1) for line in lines)]
    )


def test_a_token_may_do_what_its_lines_say_and_no_more() -> None:
    known = tokens("one app r orders/*", "one app rw notes", "two other w *")
    caller = known.caller_of("Bearer one")
    assert caller is not None
    assert caller.name == "token app"
    assert caller.may(Right.READ, "orders/1")
    assert not caller.may(Right.WRITE, "orders/1")
    assert caller.may(Right.WRITE, "notes")
    assert not caller.may(Right.READ, "other")
    for unknown in (None, "", "Bearer", "Bearer three", "Basic one", "Bearer one two", "Bearer one,", "bEARER one"):
        assert known.caller_of(unknown) is None


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


def test_a_file_of_tokens_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{'0' * 64} app r *\n")
    path.chmod(0o646)
    with pytest.raises(InvalidSettingError, match="everybody"):
        AccessTokens.read(path)
    path.chmod(0o640)
    assert len(AccessTokens.read(path).grants) == 1


def test_a_line_that_is_no_grant_is_named_and_not_shown() -> None:
    with pytest.raises(InvalidSettingError, match="line 2") as refused:
        AccessTokens.parse(["# who may do what", "secret app rw *"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_only_tokens_let_others_reach_the_server(host: str) -> None:
    with pytest.raises(InvalidSettingError):
        Listening(host).check(None)
    Listening(host).check(tokens("one app r *"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_a_loopback_address_needs_no_tokens(host: str) -> None:
    Listening(host).check(None)


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


def test_the_log_has_no_control_characters_of_a_path() -> None:
    record = logging.makeLogRecord({"msg": "request", "path": "/a\x9b2J\x7f\u2028\n{}"})
    line = JsonLogLines().format(record)
    assert line.isascii()
    assert json.loads(line)["path"] == "/a\x9b2J\x7f\u2028\n{}"


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


def test_clients_that_do_not_read_take_bounded_memory() -> None:
    limits = RequestLimits(0, 1, max_unread_bytes=10)
    with limits.answer(20):  # more than the bound, but there is nothing else
        with pytest.raises(Refusal) as refused, limits.answer(1):
            pass
        assert refused.value.kind.status == 503
    with limits.answer(4), limits.answer(6):
        assert limits.unread_bytes == 10
    assert limits.unread_bytes == 0


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
