"""Requests over HTTP: a pool of connections, a bounded number of attempts, and an end to all of it from any thread."""

from __future__ import annotations

import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from coldstream.errors import UnavailableError
from coldstream.retry import retrying

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

    Clients that come and go share a `trust`: without one, each connection loads the certificates, in 10 ms or more.
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
        # `request` retries. urllib3's own retries would multiply the attempts, and `close` would not end their waits.
        self._pool = urllib3.PoolManager(
            num_pools=8,
            maxsize=connections,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
            ssl_context=trust,
        )
        self._pool.pool_classes_by_scheme = {
            "http": _tracking(urllib3.HTTPConnectionPool, HTTPConnection, self._track),
            "https": _tracking(urllib3.HTTPSConnectionPool, HTTPSConnection, self._track),
        }

    def get(
        self, url: str, headers: Callable[[], Mapping[str, str]], read: Callable[[urllib3.BaseHTTPResponse], T]
    ) -> T:
        """GET a URL and return what `read` makes of the response. As `request`."""
        return self.request("GET", url, headers, read)

    def request(
        self,
        method: str,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        read: Callable[[urllib3.BaseHTTPResponse], T],
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
        self._pool.clear()

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[urllib3.BaseHTTPResponse], T],
        body: bytes | None,
    ) -> T:
        where = url.partition("?")[0]  # a presigned URL's query is a secret
        try:
            response = self._pool.request(
                method, url, body=body, headers=headers, preload_content=False, redirect=False
            )
            try:
                return read(response)
            except BaseException:
                # Or the rest of the body would be taken for the next response on this connection.
                response.close()
                raise
            finally:
                response.release_conn()
        except urllib3.exceptions.HTTPError as err:
            raise UnavailableError(f"{method} {where}: {err}") from err

    def _sleep(self, delay_s: float) -> None:
        """Wait between two attempts; `close` ends the wait."""
        self._closed.wait(delay_s)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError

    def _track(self, connection: HTTPConnection) -> None:
        if isinstance(connection.sock, socket.socket):
            with self._lock:
                self._sockets.add(connection.sock)
        # After adding it: see `close`.
        self._check_open()


def _is_transient(err: Exception) -> bool:
    return isinstance(err, UnavailableError) and err.retryable


def _tracking(pool: type, connection: type, track: Callable[[HTTPConnection], None]) -> Any:
    """Derive a class of connection pools that calls `track` with each connection once it is made."""

    def connect(self: Any) -> None:
        connection.connect(self)  # type: ignore[attr-defined]  # every HTTPConnection has it
        track(self)

    tracked = type(connection.__name__, (connection,), {"connect": connect})
    return type(pool.__name__, (pool,), {"ConnectionCls": tracked})
