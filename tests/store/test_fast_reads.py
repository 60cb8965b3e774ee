"""What is `LeanTable`'s own: how a request is made, and what becomes of an answer that is none."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from coldstream.errors import AccessDeniedError, ColdstreamError, InvalidSettingError, UnavailableError
from coldstream.store.attributes import TYPES
from coldstream.store.environment import AwsEnvironment
from coldstream.store.fast_reads import FastTable
from coldstream.store.items import Item
from coldstream.units import Offset
from tests.store.samples import ORDERS

pytestmark = pytest.mark.usefixtures("delays")

LIFE = ORDERS.incarnation
EMPTY = b'{"Items":[],"Count":0,"ScannedCount":0}'


def http(body: bytes = EMPTY, status: str = "200 OK", **headers: str) -> bytes:
    """Make an answer that ends its connection, of this length, unless headers say otherwise."""
    named = {"Content-Length": str(len(body)), "Connection": "close", "x-amzn-requestid": "1"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


KEPT = http(Connection="keep-alive")


def refusal(code: str, status: str = "400 Bad Request") -> bytes:
    return http(b'{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"as told"}' % code.encode(), status)


class Script:
    """A server that gives `answers` in turn, b"" for none; `closes` ends connections unannounced."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self.closes = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                while self.answers and self._read(connection):
                    answer = self.answers.pop(0)
                    connection.sendall(answer)
                    if self.closes or answer != KEPT:
                        break

    def _read(self, connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := connection.recv(65536)):
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        while len(body) < length:
            body += connection.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)
        return True


@pytest.fixture
def server() -> Iterator[Script]:
    with Script() as server:
        yield server


@pytest.fixture
def table(server: Script) -> FastTable:
    return FastTable("manifest", AwsEnvironment("eu-central-1", "id", "secret", "token/+=", server.url))


def read(table: FastTable) -> object:
    return table.gaps(LIFE, 1)


def test_a_request_is_signed_as_the_sdk_signs_it(server: Script, table: FastTable) -> None:
    server.answers = [http()]
    read(table)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
    sent = {name.lower(): value for name, _, value in lines}
    signed = {name: sent[name] for name in ("host", "content-type", "x-amz-target", "x-amz-date")}
    request = AWSRequest(
        method="POST", url=server.url, data=body, headers=signed | {"X-Amz-Security-Token": "token/+="}
    )
    request.context["timestamp"] = sent["x-amz-date"]
    signer = SigV4Auth(Credentials("id", "secret", "token/+="), "dynamodb", "eu-central-1")
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert sent["authorization"].endswith(f"Signature={signature}")
    assert sent["x-amz-security-token"] == "token/+="


def test_a_request_carries_the_trace_of_the_invocation(
    server: Script, table: FastTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = "Root=1-691fee20-0123456789abcdef01234567;Parent=53995c3f42cd8ad8;Sampled=1"
    monkeypatch.setenv("_X_AMZN_TRACE_ID", trace)
    server.answers = [http()]
    read(table)
    assert f"\r\nX-Amzn-Trace-Id: {trace}\r\n".encode() in server.requests[0]


def test_a_connection_is_kept(server: Script, table: FastTable) -> None:
    server.answers = [KEPT] * 3
    for _ in range(3):
        read(table)
    assert server.connections == 1


def test_a_connection_that_the_server_has_closed_meanwhile_costs_no_attempt(
    server: Script, table: FastTable, delays: list[float]
) -> None:
    server.closes = True
    server.answers = [KEPT] * 2
    for _ in range(2):
        read(table)
        threading.Event().wait(0.1)
    assert server.connections == 2
    assert delays == []


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(b"", id="closed without an answer"),
        pytest.param(http(Content_Length=str(len(EMPTY) + 1)), id="cut"),
        pytest.param(http(x_amz_crc32=str(zlib.crc32(EMPTY) ^ 1)), id="another CRC-32"),
        pytest.param(http(EMPTY[:-1]), id="no JSON"),
        pytest.param(http(b"[]"), id="no object"),
        pytest.param(http(b"{}"), id="no items"),
        pytest.param(http(EMPTY).replace(b"x-amzn-requestid", b"x-request-id"), id="a proxy's"),
        pytest.param(http(b"<html>", "403 Forbidden"), id="a proxy's refusal"),
        pytest.param(b"SMTP\r\n\r\n", id="no HTTP"),
        pytest.param(refusal("ProvisionedThroughputExceededException"), id="throttled"),
        pytest.param(refusal("InternalServerError", "500 Internal Server Error"), id="failed"),
        pytest.param(http(b"<html>", "503 Service Unavailable"), id="unavailable"),
    ],
)
def test_what_may_pass_is_tried_again_after_a_while(
    server: Script, table: FastTable, failure: bytes, delays: list[float]
) -> None:
    server.answers = [failure] * 3 + [http(x_amz_crc32=str(zlib.crc32(EMPTY)))]
    assert read(table) == ()
    assert len(server.requests) == 4
    assert all(0 <= delay <= most for delay, most in zip(delays, (1, 2, 4), strict=True))


def test_retries_end(server: Script, table: FastTable) -> None:
    server.answers = [b""] * 9
    with pytest.raises(UnavailableError, match="query of the manifest") as caught:
        read(table)
    assert type(caught.value) is UnavailableError
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (refusal("AccessDeniedException"), AccessDeniedError),
        (refusal("ExpiredTokenException"), AccessDeniedError),
        (refusal("UnrecognizedClientException"), AccessDeniedError),
        (refusal("ResourceNotFoundException"), InvalidSettingError),
        (refusal("ValidationException"), ColdstreamError),
    ],
)
def test_what_will_not_pass_is_told_at_once(
    server: Script, table: FastTable, failure: bytes, error: type[Exception]
) -> None:
    server.answers = [failure] * 2
    with pytest.raises(error, match="query of the manifest") as caught:
        read(table)
    assert type(caught.value) is error
    assert len(server.requests) == 1


@pytest.mark.parametrize("read", [lambda table: table.head(LIFE), lambda table: list(table.journal(LIFE))])
def test_a_service_that_is_not_there_is_unavailable(read: Callable[[FastTable], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(UnavailableError):
        read(FastTable("manifest", AwsEnvironment("eu-central-1", "id", "secret", None, url)))


def test_an_answer_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.store.fast_reads.READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr("coldstream.store.fast_reads.RETRIES", 0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        table = FastTable("manifest", AwsEnvironment("eu-central-1", "id", "secret", None, url))
        with pytest.raises(UnavailableError, match="timed out"):
            table.gap(LIFE, Offset(0))


def test_the_model_that_writes_has_the_attributes_that_are_read() -> None:
    assert {name: attribute.attr_type for name, attribute in Item.get_attributes().items()} == dict(TYPES)


def test_entries_of_which_one_is_being_written_are_none_at_once(server: Script, table: FastTable) -> None:
    server.answers = [refusal("TransactionCanceledException")]
    assert table.log_at_once(LIFE, [Offset(1)]) is None
    assert len(server.requests) == 1


def test_a_transaction_answered_without_its_items_is_not_believed(server: Script, table: FastTable) -> None:
    server.answers = [http(b"{}")] * 9
    with pytest.raises(UnavailableError, match="without Responses"):
        table.log_at_once(LIFE, [Offset(1)])
