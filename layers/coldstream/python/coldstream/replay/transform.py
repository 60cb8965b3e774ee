"""A user's function that filters and maps messages on their way to a broker."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from coldstream.errors import InvalidSettingError
from coldstream.format.amqp.message import Message

Transform = Callable[[Message], Message | bytes | None]
"""Returns the message to keep it, None to leave it out, or the bytes of another AMQP 1.0 message to send instead.

It has to return the same for the same message each time: what was sent before is not sent again, whatever it says now.
"""


def load_function(name: str) -> Callable[..., Any]:
    """Import `module:function`. Raises InvalidSettingError."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as err:
        raise InvalidSettingError("transform", f"{name!r} is no module:function that can be imported: {err}") from err
    if not callable(found):
        raise InvalidSettingError("transform", f"{name!r} is no function")
    return found  # type: ignore[no-any-return]


def encoded(message: Message, transform: Transform | None) -> bytes | None:
    """Return what is to be sent for a message, None for nothing."""
    if transform is None:
        return message.raw
    made = transform(message)
    return made.raw if isinstance(made, Message) else made
