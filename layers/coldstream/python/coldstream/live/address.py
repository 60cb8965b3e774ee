"""The address of a broker, with the credentials: the URI of the stream protocol.

    rabbitmq-stream://user:password@host:5552,host2:5552
    rabbitmq-stream+tls://user:password@host:5551?cacertfile=/etc/ssl/broker-ca.pem

User and password are percent-encoded; without them both are `guest`. The port is 5552 unless given, with TLS 5551. An
IPv6 address is in brackets. The vhost is not part of the URI.

    rabbitmq-stream://user:password@balancer:5552?load_balanced=true

says that each connection to this address may lead to another node.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from coldstream.errors import InvalidSettingError

PORT = 5552
TLS_PORT = 5551

_SCHEMES = {"rabbitmq-stream": False, "rabbitmq-stream+tls": True}
_FIELD = "broker address"
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The hosts of one cluster with their ports, in the order in which they are tried, and the credentials.

    No repr, text or error shows the password. `ca_file` names a file of authorities to trust instead of the system's.
    With `load_balanced`, a node is reached only by connecting again until the balancer chooses it.
    """

    hosts: tuple[tuple[str, int], ...]
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: bool = False
    ca_file: str | None = None
    load_balanced: bool = False

    @classmethod
    def from_uri(cls, text: str) -> BrokerAddress:
        """Parse a URI. Raises InvalidSettingError, which never quotes the URI: a password may be anywhere in it."""
        scheme, separator, rest = text.strip().partition("://")
        if not separator or scheme.lower() not in _SCHEMES:
            raise InvalidSettingError(_FIELD, f"does not begin with {' or '.join(f'{name}://' for name in _SCHEMES)}")
        tls = _SCHEMES[scheme.lower()]
        rest, _, query = rest.partition("?")
        authority, _, path = rest.partition("/")
        if path:
            raise InvalidSettingError(_FIELD, "has a path; the vhost is not part of the address")
        # From the right: an "@" that is not encoded is then part of the password, and not the end of it.
        credentials, at, places = authority.rpartition("@")
        username, _, password = credentials.partition(":")
        return cls(
            tuple(_host(place, TLS_PORT if tls else PORT) for place in places.split(",")),
            _decoded(username) if at else "guest",
            _decoded(password) if at else "guest",
            tls,
            *_options(query, tls=tls),
        )

    def __str__(self) -> str:
        scheme = "rabbitmq-stream+tls" if self.tls else "rabbitmq-stream"
        return f"{scheme}://" + ",".join(place_text(host, port) for host, port in self.hosts)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a context that verifies certificates and host names; None without TLS.

        It reads files: call it in a thread. Raises InvalidSettingError if `ca_file` cannot be read.
        """
        if not self.tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as err:  # OSError: also ssl.SSLError
            raise InvalidSettingError(_FIELD, f"cacertfile {self.ca_file} cannot be read: {err}") from err


def place_text(host: str, port: int) -> str:
    """Return host and port as one text, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(place: str, default_port: int) -> tuple[str, int]:
    if place.startswith("["):
        host, bracket, port = place[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise InvalidSettingError(_FIELD, "has a bracket that is not closed")
        port = port[1:]
    else:
        host, _, port = place.partition(":")
    if not host:
        raise InvalidSettingError(_FIELD, "names no host")
    if not port:
        return host, default_port
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise InvalidSettingError(_FIELD, f"has a port that is not a number from 1 to {_MAX_PORT}")
    return host, int(port)


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as err:
        raise InvalidSettingError(_FIELD, "has credentials that are not percent-encoded UTF-8") from err


def _options(query: str, *, tls: bool) -> tuple[str | None, bool]:
    """Return the options of a URI: the file of authorities, and whether a load balancer is in front."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    ca_file = options.pop("cacertfile", None)
    load_balanced = options.pop("load_balanced", "false")
    if options:
        raise InvalidSettingError(_FIELD, "has an option other than cacertfile and load_balanced")
    if ca_file is not None and not (tls and ca_file):
        raise InvalidSettingError(_FIELD, "has a cacertfile that is empty, or that is of no use without TLS")
    if load_balanced not in {"true", "false"}:
        raise InvalidSettingError(_FIELD, "has a load_balanced that is neither true nor false")
    return ca_file, load_balanced == "true"
