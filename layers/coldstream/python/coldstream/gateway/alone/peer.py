"""`AlonePeer`: what the parts of one connection share: the way to the client, who it is, and what it has opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from coldstream.gateway.alone.client_side import HoldReason
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.permissions import PermissionSource
from coldstream.gateway.alone.sending_budget import SendingBudget
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.ports import ClientLink
from coldstream.live.subscription import Place
from coldstream.web.access_tokens import Right


class PausableLink(ClientLink, Protocol):
    """A way to the client that can leave unread what it sends."""

    def pause(self, reason: HoldReason) -> None:
        """Read nothing until `resume` with this reason. Again is the same."""
        ...

    def resume(self, *reasons: HoldReason) -> None:
        """Read again, unless there is another reason not to. Frames may come within this call."""
        ...


@dataclass(slots=True)
class AlonePeer:
    """A client by its `number`: its `address`, without the port; `advertised` is where it finds every stream.

    `versions` are the greatest that it knows of each key, as far as it has told.
    """

    number: int
    link: PausableLink
    address: str
    advertised: Place
    options: AloneOptions
    permissions: PermissionSource
    figures: GatewayFigures
    sending: SendingBudget
    user: str = ""
    vhost: str = ""
    versions: dict[int, int] = field(default_factory=dict)

    def may(self, right: Right, stream: str) -> bool:
        """Tell whether the client may read, or write, a stream."""
        return self.permissions.current.may(right, self.user, self.vhost, stream)

    @property
    def log_fields(self) -> dict[str, str | int]:
        """What each line of the log about it says."""
        return {"connection": self.number, "peer": self.link.peer, "user": self.user, "vhost": self.vhost}

    @property
    def deliver_version(self) -> int:
        """The version in which chunks are delivered."""
        return 2 if self.versions.get(Key.DELIVER, 1) > 1 else 1

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self.link.send(frame)
