from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coldstream.agent.proof import management as management_module
from coldstream.agent.proof.management import BrokerStream, ManagementClient
from coldstream.errors import AccessDeniedError, ColdstreamError, InvalidSettingError, UnavailableError
from coldstream.management.api import MAX_ANSWER_BYTES
from coldstream.read.http import ClosedError

PASSWORD = "p@ss/wörd:1"
ENCODED = "p%40ss%2Fw%C3%B6rd%3A1"

# As RabbitMQ 3.10.8 answered.
RECORDED = (
    '{"filtered_count":3,"item_count":3,"items":['
    '{"arguments":{},"effective_policy_definition":{},"name":"classic","type":"classic","vhost":"/"},'
    '{"arguments":{"x-queue-type":"stream","x-stream-max-segment-size-bytes":1000000},'
    '"effective_policy_definition":{"max-age":"7D","max-length-bytes":10000000,'
    '"stream-max-segment-size-bytes":2000000},"name":"orders","type":"stream","vhost":"/"},'
    '{"arguments":{"x-queue-type":"stream","x-stream-max-segment-size-bytes":500000},'
    '"effective_policy_definition":{},"name":"über stream","type":"stream","vhost":"grün/1"}],'
    '"page":1,"page_count":1,"page_size":500,"total_count":3}'
).encode()
OUT_OF_RANGE = b'{"error":"page_out_of_range","reason":"Page out of range, page: 2 page size: 500, len: 3"}'
NOT_MANAGEMENT = b'{"error":"not_authorised","reason":"Not management user"}'


class Api(ThreadingHTTPServer):
    """Answers each request with what `pages` has for its page, and keeps the requests."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: Callable[[int], tuple[int, bytes]] = lambda _: (200, RECORDED)
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, scheme: str = "http", path: str = "") -> str:
        return f"{scheme}://agent:{ENCODED}@127.0.0.1:{self.port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    server: Api
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        status, body = self.server.pages(int(parse_qs(urlsplit(self.path).query).get("page", "0")[0]))
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serving(server: Api) -> Iterator[Api]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Api()) as server:
        yield server


def queue(name: str, kind: str = "stream", **fields: Any) -> dict[str, Any]:
    return {"vhost": "/", "name": name, "type": kind, "arguments": {}, **fields}


def page(*items: Any, pages: int = 1) -> bytes:
    return json.dumps({"items": items, "page_count": pages}).encode()


def only(api: Api, item: Any) -> BrokerStream:
    api.pages = lambda _: (200, page(item))
    (found,) = ManagementClient(api.url()).streams()
    return found


def test_streams_come_with_their_retention_and_other_queues_do_not(api: Api) -> None:
    assert ManagementClient(api.url()).streams() == [
        BrokerStream("/", "orders", 7 * 86_400_000, 10_000_000, 2_000_000),
        BrokerStream("grün/1", "über stream", None, None, 500_000),
    ]


def test_credentials_are_decoded_and_sent_as_basic_authentication(api: Api) -> None:
    ManagementClient(api.url(path="/rabbit/")).streams()
    ((path, headers),) = api.requests
    assert path.startswith("/rabbit/api/queues?page=1&page_size=500&columns=")
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode() == f"agent:{PASSWORD}"


def test_a_policy_goes_before_an_argument_also_where_it_allows_more(api: Api) -> None:
    policy = {"max-age": "10h", "max-length-bytes": 2000}
    arguments = {"x-max-age": "1h", "x-max-length-bytes": 1000, "x-stream-max-segment-size-bytes": 500}
    item = queue("orders", arguments=arguments, effective_policy_definition=policy)
    assert only(api, item) == BrokerStream("/", "orders", 36_000_000, 2000, 500)


@pytest.mark.parametrize(
    ("text", "age_ms"),
    [
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7D", 604_800_000),
        ("1M", 2_592_000_000),
        ("1Y", 31_536_000_000),
        ("0D", None),
        ("7d", None),
        ("7", None),
        ("D", None),
        ("1 D", None),
        ("٣D", None),
        ("9" * 5000 + "s", None),
        (7, None),
        (None, None),
    ],
)
def test_ages_are_read_as_the_broker_reads_them(api: Api, text: object, age_ms: int | None) -> None:
    assert only(api, queue("orders", arguments={"x-max-age": text})).max_age_ms == age_ms


@pytest.mark.parametrize("size", [True, -1, "1000", 1.5, None, [1], 10**400])
def test_a_size_that_is_none_is_no_limit(api: Api, size: object) -> None:
    assert only(api, queue("orders", arguments={"x-max-length-bytes": size})).max_length_bytes is None


@pytest.mark.parametrize("empty", [[], "", None, {}])
def test_an_empty_policy_or_no_arguments_may_look_like_anything(api: Api, empty: object) -> None:
    item = queue("orders", arguments=empty, effective_policy_definition=empty)
    assert only(api, item) == BrokerStream("/", "orders")


def test_all_pages_are_read(api: Api) -> None:
    api.pages = lambda number: (200, page(queue(f"s{number}"), queue("c", "classic"), pages=3))
    assert [stream.name for stream in ManagementClient(api.url()).streams()] == ["s1", "s2", "s3"]


def test_pages_without_end_are_not_read_to_their_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management_module, "MAX_PAGES", 3)
    api.pages = lambda number: (200, page(queue(f"s{number}"), pages=1 << 40))
    assert len(ManagementClient(api.url()).streams()) == 3


def test_vhosts_are_asked_for_without_pages(api: Api) -> None:
    api.pages = lambda _: (200, b'[{"name":"/","tags":[]},{"name":"gr\xc3\xbcn"}]')
    assert ManagementClient(api.url()).vhosts() == ["/", "grün"]
    assert [path for path, _ in api.requests] == ["/api/vhosts?columns=name"]


@pytest.mark.parametrize("body", [b'{"items":[]}', b'[{"tags":[]}]', b"[1]", b"no JSON"])
def test_what_is_no_list_of_vhosts_is_not_taken_for_one(api: Api, body: bytes) -> None:
    api.pages = lambda _: (200, body)
    with pytest.raises(UnavailableError, match="not as a management API"):
        ManagementClient(api.url()).vhosts()


def test_asking_leaves_no_thread(api: Api) -> None:
    before = set(threading.enumerate())
    ManagementClient(api.url()).streams()
    timers = [thread for thread in set(threading.enumerate()) - before if isinstance(thread, threading.Timer)]
    for timer in timers:
        timer.join(5)
        assert not timer.is_alive()


def test_a_page_that_is_gone_meanwhile_ends_the_list(api: Api) -> None:
    api.pages = lambda number: (200, page(queue("s1"), pages=2)) if number == 1 else (400, OUT_OF_RANGE)
    assert [stream.name for stream in ManagementClient(api.url()).streams()] == ["s1"]


@pytest.mark.parametrize("name", ["", "n" * 256, "\ud800"])
def test_a_stream_of_a_name_that_none_can_have_is_passed_over(api: Api, name: str) -> None:
    api.pages = lambda _: (200, page(queue(name), queue("orders")))
    assert ManagementClient(api.url()).streams() == [BrokerStream("/", "orders")]


@pytest.mark.parametrize(
    "slowly", [b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 1000, b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1000]
)
def test_an_answer_that_trickles_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch, slowly: bytes) -> None:
    monkeypatch.setattr(management_module, "LIST_TIMEOUT_S", 0.1)

    class Trickle(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                for at in range(len(slowly)):
                    self.request.sendall(slowly[at : at + 1])
                    time.sleep(0.005)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Trickle) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        client = ManagementClient(f"http://127.0.0.1:{server.server_address[1]}")
        started = time.monotonic()
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"not listed its queues within 0\.1 s"):
                client.streams()
        server.shutdown()
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_who_may_not_is_said_to_lack_the_tag(api: Api, status: int) -> None:
    api.pages = lambda _: (status, NOT_MANAGEMENT)
    with pytest.raises(AccessDeniedError, match="'Not management user'; it needs the tag monitoring"):
        ManagementClient(api.url()).streams()
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error":"internal"}'),
        (503, b"<html>"),
        (404, b'{"error":"Object Not Found","reason":"Not Found"}'),
        (400, OUT_OF_RANGE),
        (302, b""),
        (200, b"<html>not an API</html>"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"items": 3, "page_count": 1}'),
        (200, b'{"items": [3], "page_count": 1}'),
        (200, b'{"items": [{"vhost": "/"}], "page_count": 1}'),
        (200, b'{"items": [], "page_count": "many"}'),
        (200, b'{"items": [], "page_count": 1e999}'),
        (200, b"[" * 100_000),
        (200, b"\xff"),
    ],
)
def test_another_answer_is_unavailability_and_asked_again(api: Api, status: int, body: bytes) -> None:
    api.pages = lambda _: (status, body)
    with pytest.raises(UnavailableError):
        ManagementClient(api.url()).streams()
    assert len(api.requests) == 2


def test_an_answer_without_end_is_not_read_to_its_end(api: Api) -> None:
    api.pages = lambda _: (200, b" " * (MAX_ANSWER_BYTES + 2))
    with pytest.raises(UnavailableError, match="answered more than"):
        ManagementClient(api.url()).streams()


@pytest.mark.parametrize(
    "failing",
    [
        lambda api: (401, NOT_MANAGEMENT),
        lambda api: (500, b"no"),
        lambda api: (200, b"no"),
    ],
)
def test_no_error_shows_the_credentials(api: Api, failing: Callable[[Api], tuple[int, bytes]]) -> None:
    api.pages = lambda _: failing(api)
    with pytest.raises(ColdstreamError) as raised:
        ManagementClient(api.url()).streams()
    shown = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    assert f"http://127.0.0.1:{api.port}" in shown
    assert not any(secret in shown for secret in (PASSWORD, ENCODED, "p@ss"))


def test_where_nothing_listens_the_credentials_are_not_shown_either() -> None:
    with pytest.raises(UnavailableError) as raised:
        ManagementClient(f"http://agent:{ENCODED}@127.0.0.1:1").streams()
    assert "127.0.0.1:1/api/queues" in str(raised.value)
    assert "p%40" not in f"{raised.value!r} {raised.value.__cause__!r}"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:15672",
        "ftp://agent:secret@localhost",
        "http://agent:secret@",
        "http://agent:sec/ret@localhost:15672",
        "http://agent:secret@localhost:port",
        "http://agent:secret@localhost:99999",
        "http://agent:secret@localhost/?x=1",
        "http://agent:secret@[::1",
    ],
)
def test_what_is_no_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        ManagementClient(url)
    assert "sec" not in str(raised.value)


def test_closing_ends_a_request_under_way(api: Api) -> None:
    asked, answered = threading.Event(), threading.Event()

    def wait(_: int) -> tuple[int, bytes]:
        asked.set()
        answered.wait(5)
        return 200, RECORDED

    api.pages = wait
    client = ManagementClient(api.url())
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            client.streams()
        except ClosedError as err:
            raised.append(err)

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(5)
    started = time.monotonic()
    client.close()
    thread.join(5)
    answered.set()
    assert raised
    assert time.monotonic() - started < 1
    with pytest.raises(ClosedError):
        client.streams()


def test_a_certificate_that_no_authority_vouches_for_is_refused(tmp_path: Path) -> None:
    server = Api()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path / "server.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server), pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        ManagementClient(server.url("https")).streams()
    assert server.requests == []


def self_signed(path: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1 that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )
    return path
