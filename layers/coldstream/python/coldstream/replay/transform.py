"""Transformation: a user's function that filters or changes messages on their way to a broker."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.format.amqp.message import Message

MessageTransform = Callable[[Message], Message | bytes | None]
"""Returns the message to keep it, None to leave it out, or the bytes of another AMQP 1.0 message to send instead.

It must return the same for the same message each time: what was sent before is not sent again, whatever it returns now.
"""


def transform_message(message: Message, transform: MessageTransform | None) -> bytes | None:
    """Return the bytes to send for a message, or None to leave it out."""
    return message.raw if transform is None else raw_of(transform(message))


def raw_of(result: Message | bytes | None) -> bytes | None:
    """Return the bytes to send for what a function has returned, or None for nothing."""
    return result.raw if isinstance(result, Message) else result
