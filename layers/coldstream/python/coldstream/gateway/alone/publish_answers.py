"""What publishers are answered: confirms and refusals, of many messages at a time.

    PublishConfirm, PublishError; after length, key and version; all integers big-endian
     0  publisher id    u8
     1  count           i32
     5  count times:
        publishing id   u64
        code            u16     in a PublishError alone

Upstream: PROTOCOL.adoc of rabbitmq_stream.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from coldstream.gateway.frames.frame import LENGTH_BYTES
from coldstream.gateway.frames.keys import Code, Key

_HEAD = struct.Struct(">IHHBi")  # length, key, version, publisher id, count
_REFUSED = struct.Struct(">QH")  # publishing id, code


def publish_confirm(publisher_id: int, ids: Sequence[int]) -> bytes:
    """Return the frame that says that messages are durable."""
    return _frame(Key.PUBLISH_CONFIRM, publisher_id, len(ids), struct.pack(f">{len(ids)}Q", *ids))


def publish_error(publisher_id: int, ids: Sequence[int], code: Code) -> bytes:
    """Return the frame that says that messages are not stored."""
    return _frame(Key.PUBLISH_ERROR, publisher_id, len(ids), b"".join(_REFUSED.pack(one, code) for one in ids))


def _frame(key: Key, publisher_id: int, count: int, body: bytes) -> bytes:
    return _HEAD.pack(_HEAD.size - LENGTH_BYTES + len(body), key, 1, publisher_id, count) + body
