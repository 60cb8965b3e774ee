"""HTTP connections to one server, kept between requests."""

from __future__ import annotations

import select
import socket
import ssl
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection


class HttpConnections:
    """Connections to a server, of which `most` are kept while nobody uses them. Threads may share it.

    Nothing is sent before the first call. `trust` is called for the first connection by TLS. `on_open` gets the socket
    of each new connection.
    """

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int | None,
        *,
        connect_timeout_s: float,
        read_timeout_s: float,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        most: int | None = None,
        on_open: Callable[[socket.socket], None] = lambda _: None,
    ) -> None:
        self._is_tls = scheme == "https"
        self._host = host
        self._port = port
        self._read_timeout_s = read_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._trust = trust
        self._context: ssl.SSLContext | None = None
        self._most = most
        self._on_open = on_open
        self._idle: list[HTTPConnection] = []  # append and pop of a list are atomic
        weakref.finalize(self, _close, self._idle)  # a bound method would keep `self` alive

    @contextmanager
    def lend(self) -> Iterator[HTTPConnection]:
        """Lend a connection, and keep it after a success. Raises OSError; what the block raises closes it."""
        connection = self._idle_connection() or self._new_connection()
        try:
            yield connection
        except BaseException:
            # Or the rest of an answer would be taken for the next one.
            connection.close()
            raise
        # `http.client` drops the socket if the server announced that it closes: there is nothing to keep then.
        if connection.sock is not None:
            if self._most is None or len(self._idle) < self._most:
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        _close(self._idle)

    def _idle_connection(self) -> HTTPConnection | None:
        """Take a connection that the server has not closed: an idle socket is readable only if the server closed it."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not _is_readable(connection.sock):
                return connection
            connection.close()

    def _new_connection(self) -> HTTPConnection:
        if self._is_tls:
            # Loaded once: that takes 10 ms or more.
            self._context = self._context or self._trust()
            connection: HTTPConnection = HTTPSConnection(
                self._host, self._port, timeout=self._connect_timeout_s, context=self._context
            )
        else:
            connection = HTTPConnection(self._host, self._port, timeout=self._connect_timeout_s)
        try:
            connection.connect()
            connection.sock.settimeout(self._read_timeout_s)  # the constructor's was for connecting
            self._on_open(connection.sock)
        except BaseException:
            connection.close()  # the socket is open if only TLS failed
            raise
        return connection


def _is_readable(sock: socket.socket) -> bool:
    # Not `select`, which refuses descriptors of 1024 and above.
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _close(connections: list[HTTPConnection]) -> None:
    while connections:
        connections.pop().close()
