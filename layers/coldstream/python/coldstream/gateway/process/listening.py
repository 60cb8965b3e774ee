"""The address that all processes of a gateway share.

Each process has a listening socket of its own there (SO_REUSEPORT). The kernel picks one of them for each connection,
by a hash of both addresses. It allows that to processes of one user alone.
"""

from __future__ import annotations

import socket

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort

BACKLOG = 1024


def hold_address(address: HostPort) -> socket.socket:
    """Take an address without listening at it; port 0 takes any free one.

    Raises InvalidSettingError if that is impossible, also if another gateway of the same user listens there, whose
    connections this one would take otherwise.
    """
    try:
        # Without SO_REUSEPORT the kernel refuses an address at which anybody listens.
        with _bound(address, shared=False):
            pass
        return _bound(address, shared=True)
    except OSError as err:
        raise InvalidSettingError("--listen", f"{address}: {err.strerror or err}") from err


def listen_at(address: HostPort) -> socket.socket:
    """Listen at an address that the parent holds. Raises InvalidSettingError."""
    try:
        bound = _bound(address, shared=True)
        bound.listen(BACKLOG)
    except OSError as err:
        raise InvalidSettingError("--listen", f"{address}: {err.strerror or err}") from err
    bound.setblocking(False)
    return bound


def _bound(address: HostPort, *, shared: bool) -> socket.socket:
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, found = infos[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # [::] takes IPv4, too, whatever the machine's default is.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(found)
    except OSError:
        bound.close()
        raise
    return bound
