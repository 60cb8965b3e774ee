"""The agent's HTTP server: `/metrics` for Prometheus, `/healthz` for a supervisor, `/status` for the command line."""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from prometheus_client.exposition import choose_encoder

from coldstream.agent.metrics import AgentMetrics
from coldstream.errors import InvalidSettingError

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 16
"""More at once are closed unanswered."""

REQUEST_TIMEOUT_S = 10.0
"""For a request to come and its answer to go, however slowly."""

NO_ROOM_PAUSE_S = 0.1
STALLED_S = 60.0

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    content_type: str
    body: bytes


class StatusServer:
    """Answers at `host`:`port`, any free port where that is 0, from its start until its stop.

    `turned_s` returns how long ago the agent's main loop last turned; it is called in threads of the server. Past
    `stalled_s` the agent is not healthy. That AWS or the broker is down is said, and is no reason to restart anything.
    Who can connect can read everything: nothing secret is shown, and nothing can be changed. Raises InvalidSettingError
    when the address cannot be listened on.
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
        try:
            self._server = _Server(host, port, self._answer)
        except (OSError, OverflowError, TypeError) as err:
            raise InvalidSettingError("--listen", f"cannot listen on {host} port {port}: {err}") from err
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="status", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End, at once: requests under way are cut off with the process."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answer(self, path: str, accept: str) -> _Answer:
        if path == "/metrics":
            try:
                encode, content_type = choose_encoder(accept)
            except (TypeError, ValueError):  # of versions that are no numbers
                encode, content_type = choose_encoder("")
            return _Answer(HTTPStatus.OK, content_type, encode(self._metrics.registry))
        if path == "/healthz":
            return self._health()
        if path == "/status":
            status = self._metrics.status
            if status is None:
                return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the agent is starting"})
            return _Answer(HTTPStatus.OK, _JSON, status.to_json())
        return _json(HTTPStatus.NOT_FOUND, {"error": "there are /metrics, /healthz and /status"})

    def _health(self) -> _Answer:
        turned_s = self._turned_s()
        is_healthy = turned_s < self._stalled_s
        reasons = [] if is_healthy else [f"the main loop has not turned for {turned_s:.0f} s"]
        status = self._metrics.status
        content = {
            "healthy": is_healthy,
            "reasons": reasons,
            "problems": ["the agent is starting"] if status is None else list(status.problems),
        }
        return _json(HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE, content)


def _json(status: HTTPStatus, content: dict[str, Any]) -> _Answer:
    return _Answer(status, _JSON, json.dumps(content).encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, host: str, port: int, answer: Callable[[str, str], _Answer]) -> None:
        self.answer = answer
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._came_at: dict[Any, float] = {}
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _RequestHandler)

    def server_bind(self) -> None:
        """Bind, and leave out what HTTPServer does more: it asks DNS for our name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Take a connection; where that fails, as without a free file descriptor, it would be tried again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(NO_ROOM_PAUSE_S)
            raise

    def service_actions(self) -> None:
        """Break off what takes too long; called several times a second."""
        latest = time.monotonic() - REQUEST_TIMEOUT_S
        for request, came_at in list(self._came_at.items()):
            if came_at < latest:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, of which there are so many and no more."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._came_at[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._done(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def _done(self, request: Any) -> None:
        del self._came_at[request]
        self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  socketserver's signature
        """Pass over clients that break off."""
        log.debug("a request from %s broke off: %r", client_address, sys.exception())


class _RequestHandler(BaseHTTPRequestHandler):
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
        """Say nothing: a scrape every few seconds would fill the log."""
