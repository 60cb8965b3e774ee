"""The agent's HTTP server.

/metrics    for Prometheus
/status     for `coldstream agent status`
/healthz    for supervisors: 503 only if a restart would help
/readyz     for supervisors: 503 while the agent starts, and while something is wrong with it as a whole
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from prometheus_client.exposition import choose_encoder

from coldstream.agent.monitor.bounded_connections import MAX_CONNECTIONS, BoundedConnections
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.monitor.shared_answers import SharedAnswers
from coldstream.errors import InvalidSettingError

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
"""For a request to arrive and its answer to leave, together."""

NO_ROOM_PAUSE_S = 0.1
STALLED_S = 60.0
"""Without a turn of the main loop, after which the agent is not healthy."""

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    content_type: str
    body: bytes


class StatusServer:
    """Answers at `host`:`port` from `start` until `stop`; port 0 takes any free one.

    `turned_s` returns how long ago the agent's main loop last turned; threads of the server call it. After `stalled_s`
    the agent is not healthy. An AWS or a broker that is down, or refuses the agent, makes it not ready, but no restart
    would help. One list or scrape is made at a time, for all who wait for one. Health waits for neither, as a
    supervisor would take a slow scrape for a dead agent.

    Whoever can connect can read everything: nothing secret is shown, and nothing can be changed. Raises
    InvalidSettingError if the address cannot be listened on.
    """

    def __init__(
        self,
        metrics: AgentMetrics,
        turned_s: Callable[[], float],
        *,
        host: str,
        port: int,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._metrics = metrics
        self._turned_s = turned_s
        self._stalled_s = stalled_s
        self._answers = SharedAnswers[bytes]()
        try:
            self._server = _Server(host, port, self._answer)
        except (OSError, OverflowError, TypeError) as err:
            raise InvalidSettingError("--listen", f"cannot listen on {host} port {port}: {err}") from err
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="status", daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End at once: requests under way are cut off with the process."""
        if self._thread.is_alive():
            # Only with a thread: `shutdown` waits for the end of `serve_forever`, and would wait for ever without one.
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answer(self, path: str, accept: str) -> _Answer:
        match path:
            case "/healthz":
                return self._health()
            case "/readyz":
                return self._readiness()
            case "/metrics":
                return self._scrape(accept)
            case "/status":
                if self._metrics.status is None:
                    return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the agent is starting"})
                return _Answer(HTTPStatus.OK, _JSON, self._answers.get(path, self._status))
        return _json(HTTPStatus.NOT_FOUND, {"error": "there are /metrics, /healthz, /readyz and /status"})

    def _scrape(self, accept: str) -> _Answer:
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the client names a version that is no number
            encode, content_type = choose_encoder("")
        body = self._answers.get(content_type, lambda: encode(self._metrics.registry))
        return _Answer(HTTPStatus.OK, content_type, body)

    def _status(self) -> bytes:
        status = self._metrics.status
        assert status is not None
        return status.to_json()

    def _health(self) -> _Answer:
        reasons = self._stalled()
        content = {"healthy": not reasons, "reasons": reasons, "problems": self._problems()}
        return _json(HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK, content)

    def _readiness(self) -> _Answer:
        problems = [*self._stalled(), *self._problems()]
        content = {"ready": not problems, "problems": problems}
        return _json(HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK, content)

    def _stalled(self) -> list[str]:
        turned_s = self._turned_s()
        return [] if turned_s < self._stalled_s else [f"the main loop has not turned for {turned_s:.0f} s"]

    def _problems(self) -> list[str]:
        status = self._metrics.status
        return ["the agent is starting"] if status is None else list(status.problems)


def _json(status: HTTPStatus, content: dict[str, Any]) -> _Answer:
    return _Answer(status, _JSON, json.dumps(content).encode())


class _Server(ThreadingHTTPServer):
    # A client that reads slowly must not keep the agent from ending.
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, host: str, port: int, answer: Callable[[str, str], _Answer]) -> None:
        self.answer = answer
        self._connections = BoundedConnections()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _StatusHandler)

    def server_bind(self) -> None:
        """Bind without the DNS lookup of our own name that HTTPServer makes: it may take long, and nobody needs it."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Take a connection. If that fails, pause: serve_forever would try again at once, and keep a processor busy."""
        try:
            return super().get_request()
        except OSError:  # as when no file descriptor is free
            time.sleep(NO_ROOM_PAUSE_S)
            raise

    def service_actions(self) -> None:
        """Break off connections that take too long. Called several times a second, and after each new connection."""
        self._connections.break_off_late(REQUEST_TIMEOUT_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own."""
        # Before the thread starts: a quick one would remove the connection before it is there, and it would stay.
        self._connections.admit(request, str(client_address[0]))
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._connections.remove(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.remove(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  socketserver's signature
        """Ignore clients that break off."""
        log.debug("a request from %s broke off: %r", client_address, sys.exception())


class _StatusHandler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "coldstream"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer, and close the connection: HTTP/1.0."""
        try:
            answer = self.server.answer(self.path.partition("?")[0], self.headers.get("accept", ""))
        except Exception:
            log.exception("GET %r failed", self.path)
            answer = _json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "see the agent's log"})
        self.send_response(answer.status)
        self.send_header("content-type", answer.content_type)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815  http.server's name for it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name for it
        """Log nothing: a scrape every few seconds would fill the log."""
