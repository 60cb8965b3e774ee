from __future__ import annotations

import errno
import http.client
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from coldstream.agent.monitor.http import StatusServer
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.status import AgentStatus
from coldstream.errors import InvalidSettingError
from coldstream.web import small_http as http_module
from coldstream.web.bounded_connections import MAX_CONNECTIONS, MAX_CONNECTIONS_OF_PEER
from tests.support.agent_status import agent_status, stream_status


class Running:
    """A server, its metrics, and how long ago its main loop turned."""

    def __init__(self) -> None:
        self.metrics = AgentMetrics()
        self.turned_s = 0.5
        self.server = StatusServer(self.metrics, self._turned, host="127.0.0.1", port=0, stalled_s=60)

    def _turned(self) -> float:
        if self.turned_s < 0:
            raise ValueError("a bug")
        return self.turned_s

    def get(self, path: str, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> tuple[int, Any]:
        response, body = self.get(path)
        assert response.getheader("content-type") == "application/json"
        return response.status, json.loads(body)


@pytest.fixture
def running() -> Iterator[Running]:
    found = Running()
    with found.server:
        yield found


def test_metrics_are_prometheus_text(running: Running) -> None:
    running.metrics.show(agent_status(stream_status()))
    response, body = running.get("/metrics?name=x")
    assert response.status == 200
    assert str(response.getheader("content-type")).startswith("text/plain; version=0.0.4")
    assert b'coldstream_agent_pinned_bytes{stream="orders",vhost="/"} 3000.0' in body


def test_the_status_is_the_last_snapshot(running: Running) -> None:
    running.metrics.show(agent_status(stream_status()))
    _, body = running.get("/status")
    assert AgentStatus.from_json(body, source="") == agent_status(stream_status())


def test_before_the_first_snapshot_there_is_no_status(running: Running) -> None:
    assert running.json("/status") == (503, {"error": "the agent is starting"})


def test_an_agent_whose_main_loop_turns_is_healthy(running: Running) -> None:
    running.metrics.show(agent_status())
    assert running.json("/healthz") == (200, {"healthy": True, "reasons": [], "problems": []})


def test_an_agent_that_starts_is_healthy_and_says_so(running: Running) -> None:
    assert running.json("/healthz") == (200, {"healthy": True, "reasons": [], "problems": ["the agent is starting"]})


def test_an_agent_whose_main_loop_is_stuck_is_not_healthy(running: Running) -> None:
    running.metrics.show(agent_status())
    running.turned_s = 75
    reasons = ["the main loop has not turned for 75 s"]
    assert running.json("/healthz") == (503, {"healthy": False, "reasons": reasons, "problems": []})


def test_that_aws_is_down_is_said_and_no_reason_to_restart(running: Running) -> None:
    running.metrics.show(agent_status(problems=("AWS does not answer",)))
    assert running.json("/healthz") == (200, {"healthy": True, "reasons": [], "problems": ["AWS does not answer"]})


def test_other_paths_are_not_found(running: Running) -> None:
    assert running.json("/")[0] == 404
    assert running.json("/metrics/../../etc/passwd")[0] == 404


def test_a_head_has_no_body(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
        client.sendall(b"HEAD /healthz HTTP/1.0\r\n\r\n")
        said = b"".join(iter(lambda: client.recv(65536), b""))
    assert said.startswith(b"HTTP/1.0 200 ")
    assert said.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "SPAM"])
def test_nothing_can_be_changed(running: Running, method: str) -> None:
    assert running.get("/status", method)[0].status == 501


def test_a_failure_inside_is_answered_and_told_to_nobody(running: Running) -> None:
    running.turned_s = -1
    assert running.json("/healthz") == (500, {"error": "see the log"})


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\xff\x16\x03\x01\r\n\r\n",
        b"GET /status HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"GET",
        b"\r\n",
    ],
    ids=["noise", "version", "long line", "many headers", "cut off", "empty"],
)
def test_bad_requests_do_not_hurt_it(running: Running, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    assert running.json("/healthz")[0] == 200


def idle_connections(running: Running, count: int, peers: int, stack: ExitStack) -> list[socket.socket]:
    """Open connections that say nothing, from so many addresses of loopback."""
    address = ("127.0.0.1", running.server.port)
    return [
        stack.enter_context(
            socket.create_connection(address, timeout=5, source_address=(f"127.0.0.{2 + number % peers}", 0))
        )
        for number in range(count)
    ]


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("peers", [1, 7, 100])
def test_more_idle_connections_than_the_limit_keep_nobody_from_an_answer(running: Running, peers: int) -> None:
    with ExitStack() as idle:
        clients = idle_connections(running, 3 * MAX_CONNECTIONS, peers, idle)
        for _ in range(3):
            assert running.json("/healthz")[0] == 200
        kept = sum(not is_closed(client) for client in clients)
        assert kept <= min(MAX_CONNECTIONS, peers * MAX_CONNECTIONS_OF_PEER)


def test_one_peer_with_many_connections_pushes_no_other_out(running: Running) -> None:
    with ExitStack() as idle:
        (patient,) = idle_connections(running, 1, 1, idle)
        for _ in range(3 * MAX_CONNECTIONS):
            idle.enter_context(socket.create_connection(("127.0.0.1", running.server.port), timeout=5))
        patient.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert patient.recv(65536).startswith(b"HTTP/1.0 200 ")


def test_who_sends_a_request_letter_by_letter_is_broken_off_and_keeps_nobody_from_an_answer(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "REQUEST_TIMEOUT_S", 0.3)
    with ExitStack() as slow:
        clients = idle_connections(running, MAX_CONNECTIONS, 30, slow)
        deadline = time.monotonic() + 30
        while clients:
            assert time.monotonic() < deadline
            clients = [client for client in clients if not is_closed(client)]
            for client in clients:
                with suppress(OSError):
                    client.sendall(b"x")
            assert running.json("/healthz")[0] == 200


def test_health_waits_for_no_scrape(running: Running) -> None:
    with running.server._answers.lock:
        assert running.json("/healthz")[0] == 200
        assert running.json("/readyz")[0] == 503


@pytest.mark.parametrize("path", ["/metrics", "/status"])
def test_requests_that_come_while_an_answer_is_made_are_all_given_the_next_one(
    running: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Who asks again and again, and waits for no answer, has no heap of threads wait to make one each."""
    made: list[float] = []
    of_status, of_metrics = AgentStatus.to_json, running.metrics.collect

    def slowly(make: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: object) -> Any:
            made.append(time.monotonic())
            time.sleep(0.2)
            return make(*arguments)

        return slow

    monkeypatch.setattr(AgentStatus, "to_json", slowly(of_status))
    monkeypatch.setattr(running.metrics, "collect", slowly(of_metrics))
    running.metrics.show(agent_status())
    threads = threading.active_count()
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", running.server.port), timeout=5) as client:
            client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert running.get(path)[0].status == 200
    assert len(made) <= 10
    deadline = time.monotonic() + 5
    while threading.active_count() > threads:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_answer_is_never_older_than_its_request(running: Running) -> None:
    for number in range(20):
        running.metrics.show(agent_status(problems=(str(number),)))
        assert AgentStatus.from_json(running.get("/status")[1], source="").problems == (str(number),)


def test_an_agent_is_ready_when_nothing_is_wrong(running: Running) -> None:
    assert running.json("/readyz") == (503, {"ready": False, "problems": ["the agent is starting"]})
    running.metrics.show(agent_status())
    assert running.json("/readyz") == (200, {"ready": True, "problems": []})
    running.metrics.show(agent_status(problems=("the broker refuses the login",)))
    assert running.json("/readyz") == (503, {"ready": False, "problems": ["the broker refuses the login"]})
    running.metrics.show(agent_status())
    running.turned_s = 75
    assert running.json("/readyz")[0] == 503


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=x", "text/plain; version=,;;=", "\xff"])
def test_metrics_are_for_every_kind_of_client(running: Running, accept: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.server.port, timeout=5)
    connection.request("GET", "/metrics", headers={"accept": accept})
    assert connection.getresponse().status == 200
    connection.close()


def test_without_a_free_file_descriptor_it_does_not_spin(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def refuse(self: object) -> tuple[Any, Any]:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socketserver.TCPServer, "get_request", refuse)
        with socket.create_connection(("127.0.0.1", running.server.port), timeout=5):
            time.sleep(0.5)
    assert 0 < len(tries) < 10
    assert running.json("/healthz")[0] == 200


def test_an_address_in_use_is_a_setting_to_change(running: Running) -> None:
    with pytest.raises(InvalidSettingError, match=f"cannot listen on 127.0.0.1 port {running.server.port}"):
        StatusServer(AgentMetrics(), lambda: 0.0, host="127.0.0.1", port=running.server.port)


def test_after_the_stop_nothing_listens() -> None:
    running = Running()
    running.server.start()
    running.server.stop()
    with pytest.raises(ConnectionRefusedError):
        running.get("/healthz")


def test_a_server_that_was_never_started_can_be_stopped() -> None:
    Running().server.stop()


def test_an_address_without_a_name_that_can_be_one_is_a_setting_to_change() -> None:
    with pytest.raises(InvalidSettingError, match="--listen"):
        StatusServer(AgentMetrics(), lambda: 0.0, host="ü" * 64, port=0)


def test_it_listens_on_ipv6_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with StatusServer(AgentMetrics(), lambda: 0.0, host="::1", port=0) as server:
        connection = http.client.HTTPConnection("::1", server.port, timeout=5)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
