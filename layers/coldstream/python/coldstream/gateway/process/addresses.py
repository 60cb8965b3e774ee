"""Addresses as options say them: HOST:PORT, and which address stands for which."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Self

from coldstream.errors import InvalidSettingError

_MAX_PORT = (1 << 16) - 1


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A host, without the brackets of an IPv6 address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, option: str, text: str, *, default_port: int | None = None) -> Self:
        """Read HOST:PORT; HOST alone, if there is a default. Raises InvalidSettingError, which names the option."""
        host, colon, port = text.strip().rpartition(":")
        if default_port is not None and (not colon or port.endswith("]")):
            host, port = text.strip(), str(default_port)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            host = ""  # an IPv6 address whose last group would be taken for the port
        if not (host and host.isprintable() and " " not in host and port.isascii() and port.isdigit()):
            raise InvalidSettingError(option, f"{text[:80]!r} is not HOST:PORT, such as broker-1:5552 or [::1]:5552")
        if int(port) > _MAX_PORT:
            raise InvalidSettingError(option, f"{text[:80]!r} has no such port")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_target(option: str, address: HostPort) -> None:
    """Raise InvalidSettingError for an address that one can listen at, but not connect to."""
    if not address.port:
        raise InvalidSettingError(option, f"{address} has no port that one could connect to")
    try:
        parsed = ipaddress.ip_address(address.host)
    except ValueError:  # a name
        return
    if parsed.is_unspecified:
        raise InvalidSettingError(option, f"{address} is no address that one could connect to")


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Under which address of a gateway clients reach a broker's node."""

    broker: HostPort
    gateway: HostPort

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read BROKER:PORT=GATEWAY:PORT. Raises InvalidSettingError."""
        broker, equals, gateway = text.partition("=")
        if not equals:
            raise InvalidSettingError("--node", f"{text[:80]!r} is not BROKER:PORT=GATEWAY:PORT")
        return cls(HostPort.parse("--node", broker), HostPort.parse("--node", gateway))
