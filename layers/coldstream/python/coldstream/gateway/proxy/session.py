"""What is known of a connection: who it is, what was agreed on, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.gateway.proxy.versions import BrokerAbilities


@dataclass(slots=True)
class Session:
    """Filled in as frames pass. `peer` is the client's address, `user` what it says it is."""

    number: int
    peer: str
    user: str = ""
    vhost: str = ""
    client_name: str = ""
    """The `connection_name` of its properties."""
    broker: str = ""
    """The address of the broker."""
    broker_abilities: BrokerAbilities = field(default_factory=BrokerAbilities)
    is_open: bool = False
    """The broker has opened the vhost."""
    is_ending: bool = False
    """One side has said goodbye."""
    reason: str = ""
    """Why it ended; the first reason counts."""
    subscriptions: int = 0
    """How often the client has subscribed."""

    def end_for(self, reason: str) -> None:
        """Note why it ends, unless that is known."""
        self.reason = self.reason or reason

    @property
    def log_fields(self) -> dict[str, str | int]:
        """What each line of the log says of it."""
        return {
            "connection": self.number,
            "peer": self.peer,
            "user": self.user,
            "vhost": self.vhost,
            "client_name": self.client_name,
            "broker": self.broker,
        }
