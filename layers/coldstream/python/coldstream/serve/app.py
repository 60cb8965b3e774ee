"""The routes, and what every request goes through: who sent it, limits, and errors that become answers.

/v1/stream/{name}   PUT, POST, GET, HEAD, DELETE: a direct stream; GET, HEAD: an archived broker stream
/healthz            200 while the server takes requests
/metrics            counters in Prometheus's text format
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.serve.options import ServeOptions
from coldstream.serve.protocol.stream_name import name_of_path
from coldstream.serve.refusal import STREAM_ERRORS
from coldstream.serve.requests import StreamRequests
from coldstream.serve.serve_metrics import ServeMetrics
from coldstream.serve.stream_host import StreamHost
from coldstream.web.access_tokens import AccessTokens, Right, TokenHolder
from coldstream.web.browser_guard import OwnNames, check_browser
from coldstream.web.refusal import FORBIDDEN, NO_METHOD, NO_PATH, TOKEN_NEEDED, Refusal, refusal_of
from coldstream.web.request_limits import RequestLimits

_LOG = logging.getLogger(__name__)
_METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE"]
_READS = {"GET", "HEAD"}
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    # Whoever may append could otherwise put a page here that acts as this server's own.
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
_REQUEST_HEADERS = (
    *("Authorization", "Content-Type", "If-None-Match", "Stream-Seq", "Stream-TTL", "Stream-Expires-At"),
    *("Stream-Closed", "Producer-Id", "Producer-Epoch", "Producer-Seq"),
    *("Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset"),
)
_RESPONSE_HEADERS = (
    *("ETag", "Location", "Retry-After", "Stream-Next-Offset", "Stream-Cursor", "Stream-Up-To-Date", "Stream-Closed"),
    *("Stream-TTL", "Stream-Expires-At", "Stream-SSE-Data-Encoding"),
    *("Producer-Epoch", "Producer-Seq", "Producer-Expected-Seq", "Producer-Received-Seq"),
)


def make_app(host: StreamHost, tokens: AccessTokens | None) -> Starlette:
    """Return the application. It serves until its host is stopped; whoever made the host closes it."""
    limits = RequestLimits(host.options.requests_per_s, host.options.max_live_reads)
    metrics = ServeMetrics(host, limits)
    requests = StreamRequests(host, limits, is_private=tokens is not None)

    async def stream(request: Request) -> Response:
        caller = _caller_of(request, tokens, limits, host.options)
        name = name_of_path(request.scope["raw_path"].decode("latin-1"))
        if name is None:
            raise Refusal(NO_PATH, "there is no stream without a name")
        right = Right.READ if request.method in _READS else Right.WRITE
        if not caller.may(right, name):
            raise Refusal(FORBIDDEN, f"{caller.name} may not do this with {name!r}")
        return await requests.answer(request, name, caller)

    async def health(_: Request) -> Response:
        if host.is_stopping:
            return PlainTextResponse("stopping\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ok\n")

    async def show_metrics(request: Request) -> Response:
        _caller_of(request, tokens, limits, host.options)
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    pages = "cross-origin" if host.options.cors_origins else "same-origin"
    safe = {**_SAFE, "Cross-Origin-Resource-Policy": pages}
    middleware = [Middleware(_EveryResponse, metrics=metrics, headers=safe)]
    if host.options.cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(host.options.cors_origins),
                allow_methods=_METHODS,
                allow_headers=_REQUEST_HEADERS,
                expose_headers=_RESPONSE_HEADERS,
            )
        )
    return Starlette(
        routes=[
            Route("/v1/stream/{name:path}", _answered(stream), methods=_METHODS),
            Route("/healthz", health),
            Route("/metrics", _answered(show_metrics)),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _unrouted},
    )


def _caller_of(
    request: Request, tokens: AccessTokens | None, limits: RequestLimits, options: ServeOptions
) -> TokenHolder:
    """Return who sent a request, and count it. Raises Refusal."""
    address = TokenHolder(f"address {request.client.host if request.client is not None else 'unknown'}")
    if tokens is None:
        limits.admit(address.name)
        check_browser(request, OwnNames(options.host_names, options.cors_origins))
        return address
    caller = tokens.caller_of(request.headers.get("authorization"))
    limits.admit((caller or address).name)
    if caller is None:
        raise Refusal(TOKEN_NEEDED, "send a token that is known here", {"WWW-Authenticate": "Bearer"})
    return caller


def _answered(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Turn what an endpoint raises into an answer."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refusal as refusal:
            return refusal.response
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it
        except asyncio.CancelledError:
            raise
        except Exception as err:  # noqa: BLE001  the last place where anything can be said of it
            answer = refusal_of(err, STREAM_ERRORS)
            if answer.kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                is_expected = isinstance(err, ColdstreamError) and not isinstance(err, InvalidInputError)
                _LOG.error(
                    "a request failed",
                    extra={"method": request.method, "path": request.url.path, "error": repr(err)},
                    exc_info=None if is_expected else err,
                )
            return answer.response

    return answered


async def _unrouted(request: Request, err: Exception) -> Response:
    """Answer for a path or method that there is not, as a problem."""
    assert isinstance(err, HTTPException)
    kind = NO_METHOD if err.status_code == HTTPStatus.METHOD_NOT_ALLOWED else NO_PATH
    return Refusal(kind, f"{request.method} {request.url.path}", err.headers).response


class _EveryResponse:
    """What all responses have, errors included: headers that browsers ask for, a count, and a line in the log."""

    def __init__(self, app: ASGIApp, metrics: ServeMetrics, headers: Mapping[str, str]) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def send_safe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._headers]
            elif message["type"] == "http.response.body":
                self._metrics.sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_safe)
        finally:
            took_s = time.monotonic() - began
            self._metrics.count(scope["method"], status, took_s)
            _LOG.info(
                "request",
                extra={"method": scope["method"], "path": scope["path"], "status": status, "took_s": round(took_s, 4)},
            )
