"""The values of plain messages, those that are one data section and nothing else, without a Python object for each.

All that is read of a slice is in one piece of memory. The values lie there with the headers of entries between them.
So their beginnings and ends, in one list, are the offsets of an Arrow array in which every second element is a value.

Simple entries that are plain have one of two forms, all integers big-endian (format/entry.py, format/amqp/message.py):

     0  length             u32  bytes that follow
     4  section            4    0x00 0x53 0x75 0xa0, then u8 length · body; or 0xb0, then u32 length · body

To walk from one entry to the next would take a loop in Python. Instead, NumPy finds all places that look like a plain
entry. A chunk is plain if it has exactly as many of them as its header has entries, and each begins where the one
before it ends. If a body contains such a place by chance, its chunk is not taken for plain and is read message by
message: slower, and just as right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coldstream.format.entry import SIMPLE_HEADER_BYTES

MAX_BYTES = (1 << 31) - 1
"""Size of one piece of memory: offsets of Arrow's binary type are signed 32-bit integers."""

_SECTION = int.from_bytes(b"\x00\x53", sys.byteorder)
"""The first two bytes of a section: a described type, and that its code has one byte."""

_DATA8, _DATA32 = 0x005375A0, 0x005375B0
_HEAD8_BYTES, _HEAD32_BYTES = 5, 8
"""Size of a section's head, before its body."""

Bounds = NDArray[np.int32]
"""Where values begin and end in a piece of memory, a row for each value."""


class ByteSpan(NamedTuple):
    """The data of a chunk in a piece of memory: bytes `start` up to `end`, which hold so many entries."""

    start: int
    end: int
    entries: int


def find_values(memory: bytes, spans: Sequence[ByteSpan]) -> list[Bounds | None]:
    """Return where the values of each chunk are; None for a chunk that holds anything but plain messages.

    Spans are in order and do not overlap. Cost: about 0.3 ns a byte, so 0.12 us for an entry of 400.
    """
    if not spans or len(memory) > MAX_BYTES:
        return [None] * len(spans)
    begins, ends, heads = _find(memory, spans[0].start, spans[-1].end)
    starts = heads - SIMPLE_HEADER_BYTES
    breaks = np.zeros(len(starts) + 1, np.int64)  # for each entry, how many up to it do not begin where one ends
    np.cumsum(starts[1:] != ends[:-1], out=breaks[1:-1])
    firsts = np.searchsorted(starts, [span.start for span in spans]).tolist()
    afters = np.searchsorted(starts, [span.end for span in spans]).tolist()
    bounds = np.stack((begins, ends), axis=1).astype(np.int32)
    values: list[Bounds | None] = []
    for span, first, after in zip(spans, firsts, afters, strict=True):
        is_plain = (
            after - first == span.entries
            and starts[first] == span.start
            and ends[after - 1] == span.end
            and breaks[first] == breaks[after - 1]
        )
        values.append(bounds[first:after] if is_plain else None)
    return values


def take_values(bounds: Sequence[Bounds], memory: bytes) -> pa.Array:
    """Return a copy of the values that `find_values` found, made in one step."""
    offsets = np.concatenate(bounds)
    spaced = pa.Array.from_buffers(pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), pa.py_buffer(memory)])
    # Arrow counts bits from the lowest: 0x55 keeps the elements 0, 2, 4 and 6 of eight, which are the values.
    every_second = pa.py_buffer(b"\x55" * (offsets.size // 8 + 1))
    return spaced.filter(pa.Array.from_buffers(pa.bool_(), len(spaced), [None, every_second]))


def _find(memory: bytes, start: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Find all places from `start` up to `end` that look like a plain entry.

    Return where their bodies begin, where those end, and where their sections begin.
    """
    size = end - start
    octets = np.frombuffer(memory, np.uint8, size, start)
    words: NDArray[np.uint32] = np.ndarray(size - 3, ">u4", memory, start, 1)  # overlapping: one at every byte
    # Two bytes at a time, once from even places and once from odd ones: faster than byte by byte.
    pairs = [np.ndarray((size - at) // 2, np.uint16, memory, start + at) for at in (0, 1)]
    places = [np.flatnonzero(pair == _SECTION) * 2 + at for at, pair in enumerate(pairs)]
    sections = np.sort(np.concatenate(places), kind="stable")
    sections = sections[(sections >= SIMPLE_HEADER_BYTES) & (sections < size - 4)]
    heads = words[sections]
    is_short = heads == _DATA8
    is_data = is_short | (heads == _DATA32)
    sections, is_short = sections[is_data], is_short[is_data]
    ends = sections + words[sections - SIMPLE_HEADER_BYTES]
    sizes = np.where(is_short, octets[sections + 4], words[np.minimum(sections + 4, size - 4)])
    begins = sections + np.where(is_short, _HEAD8_BYTES, _HEAD32_BYTES)
    is_whole = begins + sizes == ends
    return begins[is_whole] + start, ends[is_whole] + start, sections[is_whole] + start
