"""What may be set for a gateway."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.errors import InvalidSettingError
from coldstream.gateway.gap_rules import GapRules
from coldstream.gateway.process.addresses import HostPort, NodeAddress, check_target
from coldstream.units import MIB

PORT = 5552
"""Of the stream protocol."""

LEAST_MEMORY_BYTES = 16 * MIB
"""For one process: two of the largest usual chunks, and what is read ahead of them."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The certificate, with its chain, and the key that clients are shown."""

    certificate: Path
    private_key: Path


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """Where the broker is; `ca` has authorities in place of the system's.

    Connections go to the addresses in turn. One that does not answer is passed over, for this connection and for a
    while.
    """

    addresses: tuple[HostPort, ...]
    is_tls: bool = False
    ca: Path | None = None
    server_name: str | None = None
    """The name in the broker's certificate, if it is not the host."""

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for what can't be."""
        if not self.addresses:
            raise InvalidSettingError("--broker", "is missing")
        for address in self.addresses:
            check_target("--broker", address)
        if not self.is_tls and (self.ca or self.server_name):
            raise InvalidSettingError("--broker-tls", "is missing: --broker-ca and --broker-name mean nothing without")


@dataclass(frozen=True, slots=True)
class AloneSide:
    """Archive-only mode: who may connect, and what they may do."""

    users: Path | None = None
    auth_command: tuple[str, ...] = ()
    """A program and its arguments."""
    permissions: Path | None = None
    is_creating: bool = False
    """Whether clients may create streams, and publish."""
    super_streams: tuple[str, ...] = ()
    """Patterns of names: archived streams NAME-0, NAME-1 and so on are the partitions of a super stream NAME."""

    def __post_init__(self) -> None:
        """Raise InvalidSettingError unless there is exactly one way to know who somebody is."""
        if (self.users is None) == (not self.auth_command):
            raise InvalidSettingError("--users", "or --auth-command is needed with --archive-only, and not both")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """All of it. Exactly one of `broker` and `alone` is there."""

    listen: HostPort
    broker: BrokerSide | None = None
    alone: AloneSide | None = None
    tls: ServerTls | None = None
    advertise: HostPort | None = None
    """One address for every node: that of a load balancer, or of this gateway."""
    nodes: tuple[NodeAddress, ...] = ()
    memory_bytes: int = 256 * MIB
    """For all cold subscriptions of all processes."""
    processes: int = 1
    gaps: GapRules = field(default_factory=GapRules)
    max_connections: int = 10_000
    """Of all processes."""
    drain_s: float = 30.0
    admin: HostPort | None = None
    log_level: int = logging.INFO

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for what can't be."""
        if (self.broker is None) == (self.alone is None):
            raise InvalidSettingError("--broker", "and --archive-only exclude each other")
        if self.advertise is not None and self.nodes:
            raise InvalidSettingError("--node", "and --advertise exclude each other")
        if self.alone is not None and self.nodes:
            raise InvalidSettingError("--node", "means nothing with --archive-only")
        if self.advertise is not None:
            check_target("--advertise", self.advertise)
        for node in self.nodes:
            check_target("--node", node.broker)
            check_target("--node", node.gateway)
        if self.memory_bytes < self.processes * LEAST_MEMORY_BYTES:
            least = f"{self.processes * LEAST_MEMORY_BYTES // MIB}MiB"
            raise InvalidSettingError("--memory", f"is less than {least}, 16MiB for each of {self.processes} processes")
        if self.max_connections < self.processes:
            raise InvalidSettingError("--max-connections", f"is less than {self.processes}, the number of processes")

    @property
    def memory_of_process_bytes(self) -> int:
        """A process's share of the memory."""
        return self.memory_bytes // self.processes

    @property
    def connections_of_process(self) -> int:
        """A process's share of the connections, rounded up."""
        return -(-self.max_connections // self.processes)
