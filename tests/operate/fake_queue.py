"""A queue in memory, as SQS hands out messages: ten at a time, hidden until they are shown or deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from coldstream.operate.message_queue import QueueMessage
from coldstream.units import TimestampMs


class FakeQueue:
    """Implements `MessageQueue`. Nothing hidden comes back by itself: no time passes."""

    name = "letters"

    def __init__(self, *bodies: str) -> None:
        self.messages: dict[str, QueueMessage] = {}
        self.hidden: set[str] = set()
        self._receipts = count(1)
        for body in bodies:
            self.send(body)

    @property
    def bodies(self) -> list[str]:
        return [message.body for message in self.messages.values()]

    def receive(self, *, hidden_s: int) -> tuple[QueueMessage, ...]:
        assert hidden_s > 0
        found = [message for message in self.messages.values() if message.id not in self.hidden][:10]
        self.hidden |= {message.id for message in found}
        for message in found:
            receipt = f"receipt-{next(self._receipts)}"
            self.messages[message.id] = replace(message, receipt=receipt, receives=message.receives + 1)
        return tuple(self.messages[message.id] for message in found)

    def show(self, messages: Sequence[QueueMessage]) -> None:
        self.hidden -= {message.id for message in messages}

    def send(self, body: str) -> None:
        number = len(self.messages) + 1
        id_ = f"{number:08}-0000"
        self.messages[id_] = QueueMessage(id_, "", body, TimestampMs(1_763_700_000_000 + number), 0)

    def delete(self, messages: Sequence[QueueMessage]) -> tuple[str, ...]:
        gone = [m.id for m in messages if m.id in self.messages and self.messages[m.id].receipt == m.receipt]
        for id_ in gone:
            del self.messages[id_]
        self.hidden -= set(gone)
        return tuple(gone)
