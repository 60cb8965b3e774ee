"""What a program says about the group that its consumer is to be a member of."""

from __future__ import annotations

import os
import platform
import secrets
from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.manifest.stream import check_name
from coldstream.store.ports import ManifestTable

LEASE_S = 30.0
MIN_LEASE_S = 0.1
MAX_LEASE_S = 3600.0


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group of consumers that share the partitions of a sharded stream, under a name of theirs.

    `table` is the archive's manifest, or its name in DynamoDB. `member` is this consumer's name in the group; without
    one it gets a name of its own. Of two processes with the same one the later is refused while the earlier lives.
    `lease_s` is how long a member that cannot reach the table goes on, and about how long its partitions stay with it
    when it dies. Its clocks may run at rates that differ by a fifth; what time it is on them does not matter.

    Raises InvalidNameError, InvalidInputError.
    """

    name: str
    table: ManifestTable | str
    member: str | None = None
    lease_s: float = LEASE_S

    def __post_init__(self) -> None:
        check_name("group", self.name)
        if self.member is not None:
            check_name("member", self.member)
        # Heartbeats tell leases in milliseconds: one that rounds to 0 would be no heartbeat to the others.
        if not MIN_LEASE_S <= self.lease_s <= MAX_LEASE_S:
            raise InvalidInputError("lease_s", f"{self.lease_s} is not from {MIN_LEASE_S:g} to {MAX_LEASE_S:g}")

    def member_name(self) -> str:
        """Return the member's name: the one that was given, or one that no other process has."""
        return self.member or f"{platform.node()[:100]}-{os.getpid()}-{secrets.token_hex(6)}"

    def open_table(self) -> ManifestTable:
        """Return the manifest table. Nothing is asked of it."""
        if not isinstance(self.table, str):
            return self.table
        from coldstream.store.table import DynamoTable  # noqa: PLC0415  the SDK takes most of a second

        return DynamoTable(self.table)
