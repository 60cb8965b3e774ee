"""Requests over HTTP: a pool of connections, a bounded number of attempts, and an end to all of it from any thread."""

from __future__ import annotations

import socket
import ssl
import string
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from coldstream.errors import UnavailableError
from coldstream.read.response import HttpResponse
from coldstream.retry import retrying
from coldstream.store.connections import HttpConnections

T = TypeVar("T")

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 20.0
"""Bound on the wait for the next bytes, not for all of them."""

ATTEMPTS = 5
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 3.0


class ClosedError(Exception):
    """The client was closed while a call was under way."""


class HttpClient:
    """Sends requests from several threads, and keeps at most `connections` open to each host.

    Clients that come and go share a `trust`: without one, each client loads the certificates, in 10 ms or more.
    """

    def __init__(
        self,
        *,
        connections: int,
        read_timeout_s: float = READ_TIMEOUT_S,
        attempts: int = ATTEMPTS,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._attempts = attempts
        self._closed = threading.Event()
        # The sockets of all connections, for `close`: the pool does not know those in use. Weak, so that it does not
        # keep them open.
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._connections = connections
        self._read_timeout_s = read_timeout_s
        self._trust = trust
        self._servers: dict[str, HttpConnections] = {}

    def get(self, url: str, headers: Callable[[], Mapping[str, str]], read: Callable[[HttpResponse], T]) -> T:
        """GET a URL and return what `read` makes of the response. As `request`."""
        return self.request("GET", url, headers, read)

    def request(
        self,
        method: str,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        read: Callable[[HttpResponse], T],
        body: bytes | None = None,
    ) -> T:
        """Send a request and return what `read` makes of the response, which it reads to its end unless it raises.

        Tries again, after growing random delays, if the connection fails or breaks off, or if `read` raises a retryable
        UnavailableError: so only for methods that may be repeated (RFC 9110, 9.2.2). Any other error of `read` comes
        out at once. `headers` is called for each attempt, as a signature has a time. Raises UnavailableError if no
        attempt succeeded, ClosedError if the client was closed.
        """

        def attempt() -> T:
            self._check_open()
            try:
                return self._request(method, url, headers(), read, body)
            except UnavailableError:
                # `close` breaks connections, and that must not look like an outage.
                self._check_open()
                raise

        return retrying(
            _is_transient,
            attempts=self._attempts,
            first_delay_s=FIRST_DELAY_S,
            max_delay_s=MAX_DELAY_S,
            sleep=self._sleep,  # not `time.sleep`: `close` has to end the wait, too
        )(attempt)

    def close(self) -> None:
        """End every request under way, in whatever thread, and refuse new ones."""
        # First the event, then the sockets: a connection made in between is either in the set or sees the event.
        self._closed.set()
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            # Not the TLS socket's own shutdown, which says goodbye first and may block.
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)
        for server in list(self._servers.values()):
            server.close()

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[HttpResponse], T],
        body: bytes | None,
    ) -> T:
        where, _, query = url.partition("?")  # a presigned URL's query is a secret
        try:
            parts = urlsplit(where)
            # As it stands, for a signature may cover it; only what no request may have is encoded.
            target = quote(f"{parts.path or '/'}{'?' if query else ''}{query}", safe=string.punctuation)
            with self._server(parts).lend() as connection:
                connection.request(method, target, body, dict(headers))
                with connection.getresponse() as response:
                    found = read(HttpResponse(response))
                    if not response.isclosed():
                        connection.close()  # its end was not read, which would be taken for the next response
        except (OSError, HTTPException) as err:
            raise UnavailableError(f"{method} {where}: {err}") from err
        return found

    def _server(self, parts: SplitResult) -> HttpConnections:
        with self._lock:
            server = self._servers.get(key := f"{parts.scheme}://{parts.netloc}")
            if server is None:
                server = self._servers[key] = HttpConnections(
                    parts.scheme,
                    parts.hostname or "",
                    parts.port,
                    connect_timeout_s=CONNECT_TIMEOUT_S,
                    read_timeout_s=self._read_timeout_s,
                    trust=self._context,
                    most=self._connections,
                    on_open=self._track,
                )
            return server

    def _context(self) -> ssl.SSLContext:
        self._trust = self._trust or ssl.create_default_context()
        return self._trust

    def _sleep(self, delay_s: float) -> None:
        """Wait between two attempts; `close` ends the wait."""
        self._closed.wait(delay_s)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError

    def _track(self, sock: socket.socket) -> None:
        if isinstance(sock, socket.socket):
            with self._lock:
                self._sockets.add(sock)
        # After adding it: see `close`.
        self._check_open()


def _is_transient(err: Exception) -> bool:
    return isinstance(err, UnavailableError) and err.retryable
