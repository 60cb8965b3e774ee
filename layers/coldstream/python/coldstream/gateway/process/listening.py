"""The address that all processes of a gateway share.

Each process has a listening socket of its own there (SO_REUSEPORT). The kernel picks one of them for each connection,
by a hash of both addresses. It allows that to processes of one user alone.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.options import PORT

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


def check_no_loop(listen: HostPort, brokers: Iterable[HostPort]) -> None:
    """Raise InvalidSettingError if a broker's address is the one at which this gateway listens.

    It would be a client of its own, and that one a client of its own, up to --max-connections. A name that cannot be
    resolved now is taken for another's.
    """
    for broker in brokers:
        if broker.port == listen.port and _is_here(listen, broker):
            raise InvalidSettingError(
                "--broker", f"{broker} is where this gateway listens: give the broker's address, or another --listen"
            )


def _is_here(listen: HostPort, broker: HostPort) -> bool:
    try:
        ours = ipaddress.ip_address(_resolved(listen)[0].partition("%")[0])
        theirs = _resolved(broker)
    except (OSError, ValueError):  # a UnicodeError is a ValueError
        return False
    if not ours.is_unspecified:
        return str(ours) in theirs
    return any(_is_of_this_machine(one) for one in theirs if ours.version == 6 or ":" not in one)  # noqa: PLR2004


def _is_of_this_machine(address: str) -> bool:
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((address, PORT))  # sends nothing
        except OSError:
            return False
        # To its own addresses a machine goes from the same address. To bind it would prove nothing: some machines
        # allow that for any address.
        return bool(asked.getsockname()[0] == address)


def _resolved(address: HostPort) -> list[str]:
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [str(info[4][0]) for info in infos]


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
