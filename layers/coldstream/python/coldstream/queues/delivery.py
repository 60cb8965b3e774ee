"""The port to one queue: its messages in order, settled batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as the broker delivered it; it stays on the queue until it is settled.

    `tag` counts the deliveries of a connection from 1 on. `redelivered` says that it was delivered before, to whomever.
    `properties` are the bytes of its content header (`fields.py`).
    """

    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes


class QueueConnection(Protocol):
    """One connection that alone consumes a queue. When it is lost, what is not settled goes back, in its order.

    At most one message more is delivered than were taken and not settled; the first is when the connection is made.
    Calls raise UnavailableError when the connection is lost, NotFoundError when the queue is gone, AccessDeniedError,
    QueueTakenError when somebody else consumes the queue.
    """

    def take(self, wait_s: float) -> Delivery | None:
        """Return the next message, None if none comes within `wait_s`."""
        ...

    def settle(self, deliveries: tuple[Delivery, ...]) -> None:
        """Take messages off the queue for good; return when the broker has done so.

        If there is just one, the next is not delivered before the next `take`.
        """
        ...

    def is_empty(self) -> bool:
        """Tell whether no message is ready."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait, and keep the connection alive meanwhile."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
