"""The head of a Deliver frame, which is all that is looked at of one that passes through.

    Deliver; all integers big-endian
     0  length                u32    of what follows
     4  key                   u16    8
     6  version               u16    1 or 2
     8  subscription id       u8
     9  committed chunk id    u64    version 2 alone
     9 or 17  chunk                  as live/delivered.py has it

Upstream: PROTOCOL.adoc of rabbitmq_stream.
"""

from __future__ import annotations

import struct
from typing import Final

from coldstream.gateway.frames.keys import Key

_HEAD_1 = struct.Struct(">IHHB")
_HEAD_2 = struct.Struct(">IHHBQ")
DELIVER_HEAD_BYTES: Final = {1: _HEAD_1.size, 2: _HEAD_2.size}
"""The bytes before the chunk, the frame's length included, by version."""

assert DELIVER_HEAD_BYTES == {1: 9, 2: 17}


def deliver_head(version: int, subscription_id: int, committed_chunk_id: int, chunk_bytes: int) -> bytes:
    """Return what stands before a chunk of so many bytes, as it is delivered: header and data, no trailer."""
    length_bytes = DELIVER_HEAD_BYTES[version] - 4 + chunk_bytes
    if version == 1:
        return _HEAD_1.pack(length_bytes, Key.DELIVER, version, subscription_id)
    return _HEAD_2.pack(length_bytes, Key.DELIVER, version, subscription_id, committed_chunk_id)
