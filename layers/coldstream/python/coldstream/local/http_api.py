"""Serve a function over HTTP, as the default route of an API Gateway HTTP API does: payload format 2.0 in and out.

Encoding, as API Gateway has it: the path arrives decoded, the raw query string as it was sent, the parameters decoded
with equal names joined by commas, header names in lower case with equal ones joined by commas, and a body that is not
text as base64.
See "Working with AWS Lambda proxy integrations for HTTP APIs" in its developer guide.
"""

from __future__ import annotations

import base64
import json
import socket
import time
import traceback
import uuid
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

from coldstream.errors import InvalidSettingError
from coldstream.local.authorizer import authorizer
from coldstream.local.messages import Handled

MAX_BODY_BYTES = 10 * 1024 * 1024
"""Of a request, by API Gateway's quota."""

_TEXT = ("text/", "application/json", "application/javascript", "application/xml")


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `target` is path and query string as they were sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source_ip: str


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response. Headers may repeat."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


FAILED = Response(500, (("content-type", "application/json"),), b'{"message":"Internal Server Error"}')
"""What API Gateway answers when a function fails, or answers what is not an answer."""

TOO_LARGE = Response(413, (("content-type", "application/json"),), b'{"message":"Request Entity Too Large"}')


def http_event(request: Request) -> dict[str, Any]:
    """Make the event that API Gateway makes of a request, payload format 2.0."""
    path, _, query = request.target.partition("?")
    headers = _joined((name.lower(), value) for name, value in request.headers)
    now = time.time()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": unquote(path),
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "local",
            "apiId": "local",
            "domainName": headers.get("host", "localhost"),
            "domainPrefix": "local",
            "http": {
                "method": request.method,
                "path": unquote(path),
                "protocol": "HTTP/1.1",
                "sourceIp": request.source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": str(uuid.uuid4()),
            "routeKey": "$default",
            "stage": "$default",
            "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": False,
    }
    parameters = _joined(parse_qsl(query, keep_blank_values=True))
    if parameters:
        event["queryStringParameters"] = parameters
    caller = authorizer(headers.get("authorization", ""))
    if caller is not None:
        event["requestContext"]["authorizer"] = caller
    if request.body:
        is_text = headers.get("content-type", "").startswith(_TEXT)
        event["body"] = request.body.decode() if is_text else base64.b64encode(request.body).decode()
        event["isBase64Encoded"] = not is_text
    return event


def http_response(result: Any) -> Response:
    """Make the response that API Gateway makes of what a function returned; FAILED where it cannot."""
    try:
        if not isinstance(result, dict) or "statusCode" not in result:
            return Response(200, (("content-type", "application/json"),), json.dumps(result).encode())
        body = result.get("body") or ""
        content = base64.b64decode(body, validate=True) if result.get("isBase64Encoded") else body.encode()
        headers = [(str(name), str(value)) for name, value in (result.get("headers") or {}).items()]
        headers += [("set-cookie", cookie) for cookie in result.get("cookies") or []]
        if "content-type" not in {name.lower() for name, _ in headers}:
            headers.append(("content-type", "text/plain; charset=utf-8"))
        return Response(int(result["statusCode"]), tuple(headers), content)
    except (AttributeError, TypeError, ValueError, Base64Error):
        traceback.print_exc()
        return FAILED


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def check_port(port: int) -> None:
    """Raise InvalidSettingError where something has a port of the loopback already; 0 is any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as err:
            problem = f"{port} cannot be used: {err.strerror}; does another `coldstream up` run?"
            raise InvalidSettingError(
                "port", f"{problem} --port takes another one, and --port 0 any that is free"
            ) from err


class HttpApi(ThreadingHTTPServer):
    """An HTTP API on a port of the loopback, any free one where `port` is 0. Open connections end with the process."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, port: int, *, function: str, invoke: Callable[[dict[str, Any]], Any], report: Callable[[Handled], None]
    ) -> None:
        super().__init__(("127.0.0.1", port), _RequestHandler)
        self._function = function
        self._invoke = invoke
        self._report = report

    @property
    def url(self) -> str:
        """Where the API is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, request: Request) -> Response:
        """Call the function with a request."""
        started = time.perf_counter()
        error = None
        try:
            response = http_response(self._invoke(http_event(request)))
        except Exception as err:  # noqa: BLE001 - whatever a handler raises, the next request is answered
            traceback.print_exc()
            response, error = FAILED, f"{type(err).__name__}: {err}"
        line = f"{request.method} {request.target} {response.status}"
        self._report(Handled(self._function, line, time.perf_counter() - started, error))
        return response


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpApi

    def handle_one_request(self) -> None:
        """Read a request and answer it, whatever its method: a default route takes them all."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        if not self.parse_request():
            return
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            response = TOO_LARGE
        else:
            body = self.rfile.read(length)
            headers = tuple(self.headers.items())
            source_ip = str(self.client_address[0])
            response = self.server.answer(Request(self.command, self.path, headers, body, source_ip))
        self.send_response(response.status)
        for name, value in response.headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("content-length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """Say nothing: the stack is told of each request."""
