"""Cursors of sharded streams: how far each partition was answered, and whose turn it is, as text that is not read.

cursor    base64url without padding, of varints:

    2                          version of this form; those of plain streams begin with the character of a brace
    crc32 of the names         another sharded stream's cursor is refused
    order                      0 key, 1 arrival
    start                      0 first, 1 last, 2 next, 3 timestamp
    timestamp                  zigzag; 0 unless the start is one
    map version
    map revision
    turn                       number of the partition to begin with
    quiet                      partitions in a row that had nothing more
    offset + 1 of each         by number; 0 for one in which the start was not found yet

A thousand partitions of a hundred million messages take about 5 kB. API Gateway takes a request of 10,240 bytes.
"""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.errors import InvalidQueryError, TruncatedError
from coldstream.manifest.shard_map import MAX_PARTITIONS
from coldstream.manifest.spec import AtEnd, AtTimestamp
from coldstream.manifest.varints import put_varint, read_varints, unzigzag, zigzag
from coldstream.resolve.super_answer import SuperOrder
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

FORM = 2
MAX_CHARACTERS = 60_000
"""More than four thousand partitions of the greatest offsets need."""

_ORDERS = (SuperOrder.KEY, SuperOrder.ARRIVAL)
_ENDS = (AtEnd("first"), AtEnd("last"), AtEnd("next"))
_TIMESTAMP = len(_ENDS)
_FIELDS = 9
_NUMBER_TOO_LONG = re.compile(rb"[\x80-\xff]{10}")


@dataclass(frozen=True, slots=True)
class SuperCursor:
    """A walk through the partitions: `offsets` are the next ones by number, without those that were not found yet."""

    order: SuperOrder
    start: AtEnd | AtTimestamp
    version: int
    revision: int
    turn: int
    quiet: int
    offsets: Mapping[int, Offset]

    def to_text(self, vhost: str, name: str) -> str:
        """Encode."""
        timestamp = self.start.timestamp if isinstance(self.start, AtTimestamp) else 0
        kind = _TIMESTAMP if isinstance(self.start, AtTimestamp) else _ENDS.index(self.start)
        held = range(max(self.offsets, default=-1) + 1)
        out = bytearray()
        for value in (
            *(FORM, _names_crc(vhost, name), _ORDERS.index(self.order), kind, zigzag(timestamp)),
            *(self.version, self.revision, self.turn, self.quiet),
            *(self.offsets[number] + 1 if number in self.offsets else 0 for number in held),
        ):
            put_varint(out, value)
        return urlsafe_b64encode(out).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str, vhost: str, name: str) -> SuperCursor:
        """Decode. Raises InvalidQueryError for any text that `to_text` does not produce for these names."""
        try:
            if len(text) > MAX_CHARACTERS:
                raise ValueError("too long")
            data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            if _NUMBER_TOO_LONG.search(data):
                raise ValueError("a number past 64 bits")
            values = read_varints(data, source="cursor", position=0, what="a cursor")
            _, _, order, kind, timestamp, version, revision, turn, quiet = values[:_FIELDS]
            offsets = values[_FIELDS:]
            if len(offsets) > 4 * MAX_PARTITIONS or max(offsets, default=0) > MAX_OFFSET + 1 or not version:
                raise ValueError("out of range")
            start = AtTimestamp(TimestampMs(unzigzag(timestamp))) if kind == _TIMESTAMP else _ENDS[kind]
            found = {number: Offset(value - 1) for number, value in enumerate(offsets) if value}
            cursor = cls(_ORDERS[order], start, version, revision, turn, quiet, found)
            # A cursor has one text. Comparing it refuses other forms, other names and other spellings.
            if cursor.to_text(vhost, name) != text:
                raise ValueError("another form, or another stream's")
        except (ValueError, IndexError, TruncatedError, InvalidQueryError) as err:
            raise InvalidQueryError("cursor", f"{text[:80]!r} is not a cursor of this sharded stream") from err
        return cursor


def _names_crc(vhost: str, name: str) -> int:
    return zlib.crc32(f"{len(vhost.encode())} {vhost}{name}".encode())
