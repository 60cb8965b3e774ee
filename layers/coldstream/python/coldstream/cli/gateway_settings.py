"""What options of `coldstream gateway` mean together: each function takes what was given, and returns the setting.

All raise InvalidSettingError, which names the option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from coldstream.gateway.process.addresses import HostPort
    from coldstream.gateway.process.options import AloneSide, BrokerSide, ServerTls

ADMIN = "127.0.0.1:9480"
LISTEN = "0.0.0.0:5552"
DEFAULT_BROKER = "localhost:5552"


def broker_side(
    addresses: list[str] | None, ca: Path | None, server_name: str | None, *, is_tls: bool, is_alone: bool
) -> BrokerSide | None:
    """Return where the broker is, None if there is none."""
    from coldstream.errors import InvalidSettingError
    from coldstream.gateway.process.addresses import HostPort
    from coldstream.gateway.process.options import PORT, BrokerSide

    if is_alone:
        given = {"--broker": addresses, "--broker-tls": is_tls, "--broker-ca": ca, "--broker-name": server_name}
        for option, value in given.items():
            if value:
                raise InvalidSettingError(option, "and --archive-only exclude each other: there is no broker")
        return None
    return BrokerSide(
        tuple(HostPort.parse("--broker", text, default_port=PORT) for text in addresses or (DEFAULT_BROKER,)),
        is_tls=is_tls,
        ca=None if ca is None else ca.absolute(),
        server_name=server_name,
    )


def alone_side(
    users: Path | None,
    auth_command: str | None,
    permissions: Path | None,
    super_stream: list[str] | None,
    *,
    is_creating: bool,
    is_alone: bool,
) -> AloneSide | None:
    """Return what archive-only mode is, None in front of a broker."""
    import shlex

    from coldstream.errors import InvalidSettingError
    from coldstream.gateway.process.options import AloneSide

    if is_alone:
        try:
            command = tuple(shlex.split(auth_command)) if auth_command is not None else ()
        except ValueError as err:
            raise InvalidSettingError("--auth-command", str(err)) from err
        return AloneSide(
            None if users is None else users.absolute(),
            command,
            None if permissions is None else permissions.absolute(),
            is_creating,
            tuple(super_stream or ()),
        )
    given: dict[str, object] = {
        "--users": users,
        "--auth-command": auth_command,
        "--permissions": permissions,
        "--create": is_creating,
        "--super-stream": super_stream,
    }
    for option, value in given.items():
        if value:
            raise InvalidSettingError(option, "is for --archive-only: in front of a broker, that decides")
    return None


def server_tls(certificate: Path | None, private_key: Path | None) -> ServerTls | None:
    """Return what clients are shown, None without TLS."""
    from coldstream.errors import InvalidSettingError
    from coldstream.gateway.process.options import ServerTls

    if certificate is not None and private_key is not None:
        return ServerTls(certificate.absolute(), private_key.absolute())
    if certificate is not None or private_key is not None:
        raise InvalidSettingError("--certificate", "and --private-key are given together, or not at all")
    return None


def process_count(memory_bytes: int, max_connections: int, *, is_creating: bool) -> int:
    """Return how many processes serve unless it is said: no more than have their least share of what there is."""
    from coldstream.gateway.process.cores import usable_cores
    from coldstream.gateway.process.options import LEAST_MEMORY_BYTES

    return 1 if is_creating else max(1, min(usable_cores(), memory_bytes // LEAST_MEMORY_BYTES, max_connections))


def admin_address(text: str) -> HostPort | None:
    """Return where /metrics and the like are, None for nowhere."""
    from coldstream.gateway.process.addresses import HostPort

    return None if text == "-" else HostPort.parse("--admin", f"127.0.0.1:{text}" if text.isdigit() else text)
