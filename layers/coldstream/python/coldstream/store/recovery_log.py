"""Objects of the recovery log in the bucket: their headers and runs, read.

The log has copies of committed chunks that wait in a broker's disk for their slice. Whoever takes its objects for
garbage would lose what a lost node alone had: only the agent that wrote them, and `coldstream recover`, delete any, and
only what the manifest covers.
"""

from __future__ import annotations

from coldstream.store.object_ports import ObjectReads
from coldstream.store.span_object import (
    LoggedRun,
    SpanEntry,
    SpanHeader,
    check_run,
    header_bytes_of,
    parse_header,
)
from coldstream.units import KIB, ByteRange

FIRST_READ_BYTES = 256 * KIB
"""Bytes of an object that are read for its header; the entries of two thousand streams have room in it."""


def read_span_header(objects: ObjectReads, key: str) -> SpanHeader:
    """Read what an object of the recovery log holds. Cost: one GET, two for a very long header.

    Raises ObjectNotFoundError, and CorruptionError, which names where.
    """
    view = objects.get_range(key, ByteRange(0, FIRST_READ_BYTES)).data
    size_bytes = header_bytes_of(view, source=key)
    if size_bytes > len(view) == FIRST_READ_BYTES:
        view = objects.get_range(key, ByteRange(0, size_bytes)).data
    return parse_header(view, source=key)


def read_run(objects: ObjectReads, key: str, entry: SpanEntry) -> LoggedRun:
    """Read the bytes of one entry, and check them. Cost: one GET. Raises as `read_span_header`."""
    data = objects.get_range(key, entry.byte_range).data
    check_run(data, entry, source=key)
    return LoggedRun(entry.stream, entry.first_offset, entry.next_offset, data)
