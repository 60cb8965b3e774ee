"""What the parent and a child tell each other over a pair of sockets that keep messages apart (SOCK_SEQPACKET).

The parent sends the child its options once, pickled. After that it sends nothing, and the end of the channel tells the
child that its parent has gone. The child sends JSON:

    {"listening": true}                               once it takes connections
    {"failed": ["--option", "…"]}                     once, before it ends, if a setting is wrong
    {"report": {…}}                                   every second
"""

from __future__ import annotations

import json
import pickle
import socket
from dataclasses import dataclass, field
from typing import Any, Self

from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.options import GatewayOptions

REPORT_EVERY_S = 1.0
MAX_MESSAGE_BYTES = 128 << 10
"""A child's report has some kilobytes. The kernel takes no message of more than 200 kB in one piece."""


@dataclass(frozen=True, slots=True)
class ChildReport:
    """What a child says of itself."""

    figures: GatewayFigures = field(default_factory=GatewayFigures)
    resident_bytes: int = 0
    cold: tuple[ColdRow, ...] = ()
    """The subscriptions that are furthest behind, not all."""
    archive_problem: str | None = None
    """Why the archive doesn't answer, None if it does or was not asked."""

    def to_json(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "figures": self.figures.to_dict(),
            "resident_bytes": self.resident_bytes,
            "cold": [[row.client, row.vhost, row.stream, row.offset, row.behind] for row in self.cold],
            "archive_problem": self.archive_problem,
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Self:
        """Return what `to_json` was made of."""
        return cls(
            GatewayFigures.from_dict(given["figures"]),
            given["resident_bytes"],
            tuple(ColdRow(*row) for row in given["cold"]),
            given["archive_problem"],
        )


@dataclass(frozen=True, slots=True)
class ChildMessage:
    """One message of a child. Exactly one field says something."""

    is_listening: bool = False
    failed: tuple[str, str] | None = None
    report: ChildReport | None = None

    def to_bytes(self) -> bytes:
        """Return the message as it is sent."""
        if self.report is not None:
            content: dict[str, Any] = {"report": self.report.to_json()}
        else:
            content = {"listening": True} if self.failed is None else {"failed": list(self.failed)}
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Self:
        """Read a message."""
        content = json.loads(body)
        report, failed = content.get("report"), content.get("failed")
        return cls(
            content.get("listening", False),
            None if failed is None else (failed[0], failed[1]),
            None if report is None else ChildReport.from_json(report),
        )


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_options(channel: socket.socket, options: GatewayOptions) -> None:
    """Tell a child what to do."""
    channel.sendall(pickle.dumps(options))


def receive_options(channel: socket.socket) -> GatewayOptions:
    """Wait for the parent's word. Raises EOFError if it goes before."""
    body = channel.recv(MAX_MESSAGE_BYTES)
    if not body:
        raise EOFError("the parent has gone")
    options = pickle.loads(body)  # noqa: S301  from the parent, over a pair that nobody else has
    assert isinstance(options, GatewayOptions)
    return options
