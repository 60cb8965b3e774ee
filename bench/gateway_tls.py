"""The gateway with TLS, against a broker with TLS."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from bench.gateway_process import gateway
from bench.gateway_runs import DIRECT, GATEWAY, ROUNDS, GatewayTable, Way
from bench.gateway_world import WrittenStream
from bench.harness import MB, in_turns
from tests.support.certificates import self_signed_pem
from tests.support.epmd import HOST, free_ports


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate that broker and gateway show, with its key in one file, and the broker's port of TLS."""

    pem: Path
    broker_port: int

    @classmethod
    def made_in(cls, directory: Path) -> Self:
        """Make them, signed by themselves."""
        return cls(self_signed_pem(directory / "certificate.pem"), free_ports(1)[0])

    @property
    def broker_settings(self) -> str:
        """Lines of rabbitmq.conf."""
        return (
            f"stream.listeners.ssl.1 = {HOST}:{self.broker_port}\n"
            f"ssl_options.certfile = {self.pem}\n"
            f"ssl_options.keyfile = {self.pem}\n"
            "ssl_options.verify = verify_none\n"
        )

    @property
    def server_options(self) -> tuple[str, ...]:
        """Options of a gateway with TLS to clients."""
        return "--certificate", str(self.pem), "--private-key", str(self.pem)

    @property
    def broker_options(self) -> tuple[str, ...]:
        """Options of a gateway with TLS to the broker."""
        return "--broker-tls", "--broker-ca", str(self.pem)


def measure_tls(
    broker_port: int,
    files: TlsFiles,
    settings: Mapping[str, str],
    *,
    live: WrittenStream,
    archived: WrittenStream,
    table: GatewayTable,
) -> None:
    """Read with TLS: live, directly and by two gateways, and what one of them has from the archive."""
    direct = Way(files.broker_port, with_tls=True)
    with ExitStack() as stack:
        beside = stack.enter_context(gateway(broker_port, settings, *files.server_options))
        both = stack.enter_context(gateway(files.broker_port, settings, *files.server_options, *files.broker_options))
        for what, ours, stream in (
            ("live read, TLS to clients", beside, live),
            ("live read, TLS to clients and broker", both, live),
            ("archive, TLS to clients", beside, archived),
        ):
            way = Way(ours.port, ours, with_tls=True)
            read = {DIRECT: partial(direct.read, live), GATEWAY: partial(way.read, stream)}
            table.rates(what, "MB/s", in_turns(read, rounds=ROUNDS, label=f"{what}: "), "bytes", MB)
