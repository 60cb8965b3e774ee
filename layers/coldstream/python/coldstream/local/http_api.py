"""A function behind HTTP, as a route of an API Gateway HTTP API: payload format 2.0.

    path                decoded
    raw query string    as it was sent
    query parameters    decoded; values of equal names joined by commas
    headers             names in lower case; values of equal names joined by commas
    body                as it is if its type is text, else base64

Upstream: "Working with AWS Lambda proxy integrations for HTTP APIs" in API Gateway's developer guide.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

from coldstream.errors import InvalidSettingError
from coldstream.local.authorizer import authorizer
from coldstream.local.forwarding import Forwards
from coldstream.local.function_protocol import InvocationReport
from coldstream.local.http_exchange import FAILED, TOO_LARGE, Request, Response

MAX_BODY_BYTES = 10 * 1024 * 1024
"""API Gateway's quota for the body of a request."""

_TEXT = ("text/", "application/json", "application/javascript", "application/xml")


def http_event(request: Request) -> dict[str, Any]:
    """Return the event that API Gateway makes of a request."""
    path, _, query = request.target.partition("?")
    headers = {**_joined((name.lower(), value) for name, value in request.headers), "x-forwarded-proto": "http"}
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
        event["body"] = request.body.decode(errors="replace") if is_text else base64.b64encode(request.body).decode()
        event["isBase64Encoded"] = not is_text
    return event


def http_response(result: Any) -> Response:
    """Return the response that API Gateway makes of a function's result, FAILED if that is invalid."""
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
    """Raise InvalidSettingError if a port of the loopback is taken. 0 is any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as err:
            problem = f"{port} cannot be used: {err.strerror}; is another `coldstream up` running?"
            raise InvalidSettingError(
                "port", f"{problem} Choose another with --port; --port 0 takes any free one"
            ) from err


NO_FORWARDS = Forwards({})


class HttpApi(ThreadingHTTPServer):
    """An HTTP API on a port of the loopback; 0 is any free one. Open connections end with the process."""

    # A client that keeps its connection open must not keep the process alive.
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        port: int,
        *,
        function: str,
        invoke: Callable[[dict[str, Any]], Any],
        report: Callable[[InvocationReport], None],
        forwards: Forwards = NO_FORWARDS,
    ) -> None:
        super().__init__(("127.0.0.1", port), _ApiRequestHandler)
        self._function = function
        self._invoke = invoke
        self._report = report
        self._forwards = forwards

    @property
    def url(self) -> str:
        """The API's address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, request: Request) -> Response:
        """Call the function with a request, or hand it to the one whose route it is, which reports it."""
        url = self._forwards.url_of(request.target)
        if url is not None:
            return self._forwards.send(url, request)
        started = time.perf_counter()
        error = None
        try:
            response = http_response(self._invoke(http_event(request)))
        except Exception as err:  # noqa: BLE001  whatever a handler raises, the next request must be answered
            traceback.print_exc()
            response, error = FAILED, f"{type(err).__name__}: {err}"
        line = f"{request.method} {request.target} {response.status}"
        self._report(InvocationReport(self._function, line, time.perf_counter() - started, error))
        return response


class _ApiRequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are two writes: Nagle's algorithm would hold back the second until the first is acknowledged.
    disable_nagle_algorithm = True
    server: HttpApi

    def handle_one_request(self) -> None:
        """Answer one request, whatever its method: a default route takes them all."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        if not self.parse_request():
            return
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY_BYTES:
            # The body is left unread, so the next bytes of this connection would be taken for a request.
            self.close_connection = True
            response = TOO_LARGE
        else:
            body = self.rfile.read(length)
            headers = tuple(self.headers.items())
            source_ip = str(self.client_address[0])
            response = self.server.answer(Request(self.command, self.path, headers, body, source_ip))
        self.send_response(response.status)
        for name, value in response.headers:
            # A function's own length may be wrong, and the client would then misread every response after this one.
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("content-length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in http.server
        """Log nothing: each request is reported to the stack."""
