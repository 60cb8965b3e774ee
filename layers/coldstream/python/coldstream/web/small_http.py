"""The HTTP server of processes that have another task: it answers a few paths, in bounded threads and time.

The agent, the worker and the gateway use it for /metrics and for their supervisors.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from coldstream.web.bounded_connections import MAX_CONNECTIONS, BoundedConnections

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
"""For a request to arrive and its answer to leave, together."""

NO_ROOM_PAUSE_S = 0.1
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What to answer a request."""

    status: HTTPStatus
    content_type: str
    body: bytes


def json_answer(status: HTTPStatus, content: dict[str, Any]) -> HttpAnswer:
    """Return an answer in JSON."""
    return HttpAnswer(status, JSON_TYPE, json.dumps(content).encode())


class SmallHttpServer(ThreadingHTTPServer):
    """Answers GET and HEAD at `host`:`port`, with what `answer` returns for a path and an Accept header."""

    # A client that reads slowly must not keep the process from ending.
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, host: str, port: int, answer: Callable[[str, str], HttpAnswer]) -> None:
        self.answer = answer
        self._connections = BoundedConnections()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _SmallHttpHandler)

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


class _SmallHttpHandler(BaseHTTPRequestHandler):
    server: SmallHttpServer
    server_version = "coldstream"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer, and close the connection: HTTP/1.0."""
        try:
            answer = self.server.answer(self.path.partition("?")[0], self.headers.get("accept", ""))
        except Exception:
            log.exception("GET %r failed", self.path)
            answer = json_answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "see the log"})
        self.send_response(answer.status)
        self.send_header("content-type", answer.content_type)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815  http.server's name for it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name for it
        """Log nothing: a scrape every few seconds would fill the log."""
