"""What `coldstream read` writes: which messages, and in which form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from coldstream.errors import BadMagicError, GapError, InvalidQueryError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.message import Message
from coldstream.manifest.spec import AtOffset, AtTimestamp, parse_offset_spec
from coldstream.read.appetite import Appetite
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, Offset, TimestampMs

StreamForm = Callable[[Message, str | None], bytes]
"""Returns what is written for a message, and for the partition that it is of, None of a stream without partitions."""


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Where reading ends: at an offset or a time, both exclusive, or after so many messages."""

    offset: int = MAX_OFFSET + 1
    timestamp: int = MAX_TIMESTAMP_MS + 1
    limit: int | None = None

    @classmethod
    def parse(cls, end: str | None, limit: int | None, now: TimestampMs) -> Self:
        """Parse --to and --limit. Raises InvalidQueryError."""
        match None if end is None else parse_offset_spec(end, now):
            case None:
                return cls(limit=limit)
            case AtOffset(offset):
                return cls(offset=offset, limit=limit)
            case AtTimestamp(timestamp):
                return cls(timestamp=timestamp, limit=limit)
            case spec:
                raise InvalidQueryError("--to", f"{spec} is neither an offset nor a time")

    @property
    def appetite(self) -> Appetite:
        """About how much will be read."""
        return Appetite(
            self.limit,
            Offset(self.offset) if self.offset <= MAX_OFFSET else None,
            TimestampMs(self.timestamp) if self.timestamp <= MAX_TIMESTAMP_MS else None,
        )

    @property
    def is_bounded(self) -> bool:
        """Tell whether there is an offset or a time at which reading ends."""
        return self.offset <= MAX_OFFSET or self.timestamp <= MAX_TIMESTAMP_MS

    def is_before(self, message: Message) -> bool:
        """Tell whether reading ends before a message. It then ends before all later ones."""
        return message.offset >= self.offset or message.timestamp >= self.timestamp

    def is_before_gap(self, gap: GapError) -> bool:
        """Tell whether reading ends before it meets a gap."""
        return gap.first_offset >= self.offset

    def bound(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield messages up to the end. It never asks for one more: that one may be long in coming."""
        try:
            for number, message in enumerate(messages, 1):
                if self.is_before(message):
                    return
                yield message
                if number == self.limit:
                    return
        except GapError as gap:
            if not self.is_before_gap(gap):
                raise


def as_json(message: Message, stream: str | None = None) -> bytes:
    """Return a message as one line of JSON, which begins with its partition if it is of one."""
    partition = {} if stream is None else {"stream": stream}
    return f"{json.dumps(partition | message.to_dict(), ensure_ascii=False)}\n".encode()


def as_published(message: Message, stream: str | None = None) -> bytes:  # noqa: ARG001  a `StreamForm`
    """Return the message's own bytes after their length in 4 bytes, big-endian."""
    return len(message.raw).to_bytes(4, "big") + message.raw


def as_body(message: Message, stream: str | None = None) -> bytes:  # noqa: ARG001  a `StreamForm`
    """Return the body and a newline: bytes as they are, other values as JSON, and all of a message that is not AMQP.

    Raises CorruptionError if the AMQP is damaged.
    """
    try:
        body = message.body
    except BadMagicError:
        return message.raw + b"\n"
    if body is None:
        return b"\n"
    if isinstance(body, bytes):
        return body + b"\n"
    return f"{json.dumps(to_json(body), ensure_ascii=False)}\n".encode()
