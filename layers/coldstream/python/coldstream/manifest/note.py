"""`EntryNote`: what an entry says of a fragment and its object does not, kept with the object as its metadata.

A fragment's index has the id, timestamp and position of each chunk, and its trailer the offsets and the place in the
segment. Neither has chunk types or epochs, and a merged fragment does not tell which points its sparse index kept. The
object's own metadata has the rest, so that the bucket alone gives the entry back (`rebuild`).

    x-amz-meta-coldstream    {"v":1,"segment":0,"epoch":3,"first_epoch":3,"messages":120,
                              "last_user":[119,8056,1700000000000],"data_crc32":305419896,"erased":1,
                              "points":"base64 of varints"}

JSON without spaces, in ASCII. `first_epoch`, `last_user`, `data_crc32`, `points` and `erased` are absent if they do not
apply. `points` are the ordinals of the sparse points, each the difference to the one before, and only in the note of a
merged identity fragment: those of a new one follow from its index, those of a compressed one from its seek table. S3
takes 2 KB of metadata. If `points` do not fit, they are left out, and a rebuild chooses points of its own.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.manifest.entry import FragmentEntry, LastUserChunk
from coldstream.manifest.varints import put_varint, read_varints
from coldstream.plain_json import read_json
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs

NOTE = "coldstream"
"""Name of the metadata, after `x-amz-meta-`."""

VERSION = 1

MAX_NOTE_BYTES = 1900
"""Bytes of a note; S3 takes 2,048 of all metadata of an object, with the names."""


@dataclass(frozen=True, slots=True)
class EntryNote:
    """What metadata says of a fragment; the fields are those of its entry. `points` are ordinals, in order."""

    segment_offset: Offset
    epoch: Epoch
    first_epoch: Epoch | None
    messages: int
    last_user_chunk: LastUserChunk | None
    data_crc32: int | None
    erased: bool = False
    points: tuple[int, ...] | None = None

    @classmethod
    def of(cls, entry: FragmentEntry, *, has_points: bool = False) -> Self:
        """Return the note of an entry, for a merged identity fragment with its points."""
        return cls(
            entry.segment_offset,
            entry.epoch,
            entry.first_epoch,
            entry.messages,
            entry.last_user_chunk,
            entry.data_crc32,
            entry.erased,
            points=tuple(point.ordinal for point in entry.sparse.points) if has_points else None,
        )

    def to_text(self) -> str:
        """Encode, in ASCII, MAX_NOTE_BYTES at most."""
        last = self.last_user_chunk
        facts: dict[str, object] = {
            "v": VERSION,
            "segment": self.segment_offset,
            "epoch": self.epoch,
            "first_epoch": self.first_epoch,
            "messages": self.messages,
            "last_user": None if last is None else [last.chunk_id, last.position, last.timestamp],
            "data_crc32": self.data_crc32,
            "erased": 1 if self.erased else None,
            "points": None if self.points is None else _points_text(self.points),
        }
        text = _json(facts)
        return text if len(text) <= MAX_NOTE_BYTES else _json({**facts, "points": None})

    @classmethod
    def from_text(cls, text: str, *, source: str) -> Self:
        """Decode. Raises CorruptionError, naming `source`, unless the text is a note."""
        try:
            facts: dict[str, Any] = read_json(text)
            if facts["v"] != VERSION:
                raise BadVersionError(source, 0, "version of a note", expected=VERSION, found=facts["v"])
            last = facts.get("last_user")
            return cls(
                Offset(int(facts["segment"])),
                Epoch(int(facts["epoch"])),
                Epoch(int(facts["first_epoch"])) if "first_epoch" in facts else None,
                int(facts["messages"]),
                LastUserChunk(ChunkId(last[0]), int(last[1]), TimestampMs(last[2])) if last else None,
                int(facts["data_crc32"]) if "data_crc32" in facts else None,
                erased=bool(facts.get("erased")),
                points=_points(facts["points"], source) if "points" in facts else None,
            )
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as err:
            raise CorruptionError(source, 0, f"metadata {NOTE}: {text[:80]!r} is not a note of a fragment") from err


def _json(facts: dict[str, object]) -> str:
    there = {name: value for name, value in facts.items() if value is not None}
    return json.dumps(there, separators=(",", ":"))


def _points_text(ordinals: tuple[int, ...]) -> str:
    out = bytearray()
    for before, ordinal in pairwise((0, *ordinals)):
        put_varint(out, ordinal - before)
    return b64encode(out).decode()


def _points(text: str, source: str) -> tuple[int, ...]:
    try:
        data = b64decode(text, validate=True)
    except Base64Error as err:
        raise ValueError(text) from err
    return tuple(accumulate(read_varints(data, source=source, position=0, what="points of a note")))
