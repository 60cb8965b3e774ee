"""Transformation: a user's function that filters or changes messages on their way to a broker."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from coldstream.errors import InvalidSettingError
from coldstream.format.amqp.message import Message

MessageTransform = Callable[[Message], Message | bytes | None]
"""Returns the message to keep it, None to leave it out, or the bytes of another AMQP 1.0 message to send instead.

It must return the same for the same message each time: what was sent before is not sent again, whatever it returns now.
"""


def load_function(name: str) -> Callable[..., Any]:
    """Import `module:function`. Raises InvalidSettingError."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as err:
        raise InvalidSettingError("transform", f"{name!r} cannot be imported as module:function: {err}") from err
    if not callable(found):
        raise InvalidSettingError("transform", f"{name!r} is not a function")
    return found  # type: ignore[no-any-return]


def transform_message(message: Message, transform: MessageTransform | None) -> bytes | None:
    """Return the bytes to send for a message, or None to leave it out."""
    if transform is None:
        return message.raw
    result = transform(message)
    return result.raw if isinstance(result, Message) else result
