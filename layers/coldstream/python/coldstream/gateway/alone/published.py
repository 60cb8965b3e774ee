"""What a Publish frame has.

    Publish; after key and version; all integers big-endian
     0  publisher id    u8
     1  count           i32
     5  count times:
        publishing id   u64
        filter value    text, in version 2 alone
        entry                   as in a chunk (format/entry.py): a simple one, or a sub-batch

Filter values are for the bloom filters of a broker's chunks, which direct streams do not have: they are read over. The
reserved bits of a sub-batch become 0, as a broker writes them: with them nobody could read the stream.

Upstream: PROTOCOL.adoc of rabbitmq_stream.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from coldstream.errors import BadFrameError
from coldstream.format.entry import RESERVED_BITS, SIMPLE_HEADER, SUB_BATCH_HEADER
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.frames.frame import KEY_BYTES

_HEAD = struct.Struct(">Bi")  # publisher id, count
_ID = struct.Struct(">Q")
_TEXT = struct.Struct(">h")
_ID_BYTES = _ID.size


@dataclass(frozen=True, slots=True)
class PublishedEntry:
    """An entry with its header, as it lies in a chunk; `records` may be 0 for an empty sub-batch."""

    publishing_id: int
    data: memoryview
    records: int


def parse_publish(body: FrameBody, version: int) -> tuple[int, list[PublishedEntry]]:
    """Return publisher and entries of what follows the length of a Publish. Raises BadFrameError."""
    view = body
    try:
        publisher_id, count = _HEAD.unpack_from(view, KEY_BYTES)
        at = KEY_BYTES + _HEAD.size
        entries = []
        for _ in range(count):
            publishing_id = _ID.unpack_from(view, at)[0]
            at += _ID_BYTES
            if version > 1:
                at += _TEXT.size + max(0, _TEXT.unpack_from(view, at)[0])
            begin = at
            kind, records = 0, 1
            length = SIMPLE_HEADER.unpack_from(view, at)[0]
            if length >= 0:
                at += SIMPLE_HEADER.size + length
            else:
                kind, records, _, length = SUB_BATCH_HEADER.unpack_from(view, at)
                at += SUB_BATCH_HEADER.size + length
            if at > len(view):
                break
            data = view[begin:at]
            if kind & RESERVED_BITS:
                data = memoryview(bytes((kind & ~RESERVED_BITS,)) + data[1:])
            entries.append(PublishedEntry(publishing_id, data, records))
    except struct.error as err:
        raise BadFrameError("a Publish ends within an entry") from err
    if count < 0 or at != len(view):
        raise BadFrameError(f"a Publish of {count} entries in {len(view)} bytes")
    return publisher_id, entries
