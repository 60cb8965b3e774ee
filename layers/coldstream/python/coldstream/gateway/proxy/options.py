"""What may be set for the proxy."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from coldstream.errors import InvalidSettingError
from coldstream.gateway.proxy.addresses import GatewayAddresses
from coldstream.live.subscription import Place


@dataclass(frozen=True, slots=True)
class Upstream:
    """The nodes of one cluster. `tls` speaks TLS to them; `server_name` is in their certificates, if not the host."""

    places: tuple[Place, ...]
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for no node at all."""
        if not self.places:
            raise InvalidSettingError("broker", "is missing")


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """All of it. `tls` has the certificate that clients are shown."""

    upstream: Upstream
    listen: Place = ("127.0.0.1", 0)
    tls: ssl.SSLContext | None = None
    addresses: GatewayAddresses = field(default_factory=GatewayAddresses)
    max_connections: int = 10_000
    handshake_timeout_s: float = 30.0
    """From the first byte to the open vhost."""
    goodbye_timeout_s: float = 5.0
    """For a peer to answer a Close, and to take what is still to be sent."""
