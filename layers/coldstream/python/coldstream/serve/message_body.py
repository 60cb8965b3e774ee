"""The bytes of a message that HTTP shows: its body, for broker streams also have messages of other kinds."""

from __future__ import annotations

import json

from coldstream.errors import BadMagicError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.message import Message


def body_of(message: Message) -> bytes:
    """Return the data of a message; an AMQP value or sequence as JSON; all of one that is not AMQP.

    Raises CorruptionError.
    """
    try:
        body = message.body
    except BadMagicError:
        return message.raw
    if isinstance(body, bytes):
        return body
    if body is None:
        return b""
    return json.dumps(to_json(body), ensure_ascii=False, separators=(",", ":")).encode()
