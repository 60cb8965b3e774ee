"""The port to a message queue, as far as dead letters need one; `sqs_queue` implements it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A message that was received and is hidden from other receivers for a while.

    `receipt` is of this receipt alone. `refusal` is what EventBridge wrote beside a message that it could not deliver
    to its target, None for a message that came from a queue.
    """

    id: str
    receipt: str
    body: str
    sent_at: TimestampMs
    receives: int
    refusal: str | None = None


class MessageQueue(Protocol):
    """One queue. Every method raises UnavailableError, after bounded retries, if the service does not answer."""

    @property
    def name(self) -> str:
        """Name of the queue."""
        ...

    def receive(self, *, hidden_s: int) -> tuple[QueueMessage, ...]:
        """Receive up to ten messages, which stay in the queue, and hide them. Empty: no visible message was found.

        It looks on all servers of the queue, and waits a second for messages. Cost: one request.
        """
        ...

    def show(self, messages: Sequence[QueueMessage]) -> None:
        """Make messages visible at once. One whose time was up is visible already. Cost: one request for ten."""
        ...

    def send(self, body: str) -> None:
        """Send a message. Cost: one request."""
        ...

    def delete(self, messages: Sequence[QueueMessage]) -> tuple[str, ...]:
        """Delete messages, and return the ids of those that the answer says were deleted. Cost: one request for ten."""
        ...
