"""Where a server listens."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from coldstream.errors import InvalidSettingError
from coldstream.web.access_tokens import AccessTokens
from coldstream.web.browser_guard import is_loopback

_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the server listens, and with which certificate; without one it speaks plain HTTP.

    `max_connections` are those of all clients together; a request beyond is answered 503.
    """

    host: str = "127.0.0.1"
    port: int = 4437
    certificate: Path | None = None
    private_key: Path | None = None
    max_connections: int = 12_000

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for half of what TLS needs."""
        if (self.certificate is None) != (self.private_key is None):
            raise InvalidSettingError("certificate", "and --private-key are given together, or not at all")

    def bind(self) -> socket.socket:
        """Take the address. Raises InvalidSettingError if that is impossible."""
        try:
            infos = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_STREAM)
            return socket.create_server(infos[0][4][:2], family=infos[0][0], backlog=_BACKLOG)
        except OSError as err:
            raise InvalidSettingError("host", f"{self.host} port {self.port}: {err.strerror or err}") from err

    def url(self, bound: socket.socket) -> str:
        """Return the URL of the server once it has taken its address."""
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.certificate is None else 'https'}://{shown}:{port}"

    def check(self, tokens: AccessTokens | None) -> None:
        """Raise InvalidSettingError for an address that others reach while nobody needs a token."""
        if tokens is None and not is_loopback(self.host):
            raise InvalidSettingError("token_file", f"is missing: {self.host} can be reached from other machines")
