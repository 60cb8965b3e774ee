"""GET over HTTP: a pool of connections, bounded retries, and an end to all of it from any thread."""

from __future__ import annotations

import random
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from coldstream.errors import UnavailableError

T = TypeVar("T")

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 20.0
"""For the next bytes to arrive, not for all of them."""

ATTEMPTS = 5
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 3.0


class ClosedError(Exception):
    """The client was closed while the request was under way."""


class HttpClient:
    """Sends GETs from several threads, over at most `connections` kept open to each host."""

    def __init__(self, *, connections: int, read_timeout_s: float = READ_TIMEOUT_S, attempts: int = ATTEMPTS) -> None:
        self._attempts = attempts
        self._closed = threading.Event()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._pool = urllib3.PoolManager(
            num_pools=8,
            maxsize=connections,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
        )
        self._pool.pool_classes_by_scheme = {
            "http": _tracking(urllib3.HTTPConnectionPool, HTTPConnection, self._track),
            "https": _tracking(urllib3.HTTPSConnectionPool, HTTPSConnection, self._track),
        }

    def get(
        self, url: str, headers: Callable[[], Mapping[str, str]], read: Callable[[urllib3.BaseHTTPResponse], T]
    ) -> T:
        """GET a URL and return what `read` makes of the response, which it reads to its end unless it raises.

        Tries again, after growing random delays, where the connection fails or breaks off, and where `read` raises a
        retryable UnavailableError; what else it raises comes out. `headers` are made anew for each attempt. Raises
        UnavailableError when no attempt succeeded, ClosedError when the client was closed meanwhile.
        """
        delay_s = FIRST_DELAY_S
        for attempt in range(1, self._attempts + 1):
            self._check_open()
            try:
                return self._get(url, headers(), read)
            except UnavailableError as err:
                self._check_open()
                if not err.retryable or attempt == self._attempts:
                    raise
            self._closed.wait(random.uniform(0, delay_s))  # noqa: S311  jitter, not a secret
            delay_s = min(2 * delay_s, MAX_DELAY_S)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End every request under way, and refuse new ones."""
        self._closed.set()
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            # The plain socket's: a TLS one would first say goodbye, which may block.
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)
        self._pool.clear()

    def _get(self, url: str, headers: Mapping[str, str], read: Callable[[urllib3.BaseHTTPResponse], T]) -> T:
        where = url.partition("?")[0]
        try:
            response = self._pool.request("GET", url, headers=headers, preload_content=False, redirect=False)
            try:
                return read(response)
            except BaseException:
                # What is left of the body must not be taken for the next response.
                response.close()
                raise
            finally:
                response.release_conn()
        except urllib3.exceptions.HTTPError as err:
            raise UnavailableError(f"GET {where}: {err}") from err

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError

    def _track(self, connection: HTTPConnection) -> None:
        if isinstance(connection.sock, socket.socket):
            with self._lock:
                self._sockets.add(connection.sock)
        self._check_open()


def _tracking(pool: type, connection: type, track: Callable[[HTTPConnection], None]) -> Any:
    """Derive a class of connection pools that reports each connection once it is made."""

    def connect(self: Any) -> None:
        connection.connect(self)  # type: ignore[attr-defined]  # every HTTPConnection has it
        track(self)

    tracked = type(connection.__name__, (connection,), {"connect": connect})
    return type(pool.__name__, (pool,), {"ConnectionCls": tracked})
