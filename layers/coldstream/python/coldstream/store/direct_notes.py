"""Two control objects of a direct stream, with which the bucket alone tells who may append to it, and where.

    open.{epoch}.json         {"version": 1, "epoch": 3, "wal": {"kind": "s3", "writer": "host-7f3a", "epoch": 1}}
    direct.{revision}.json    {"version": 1, "revision": 12, "epoch": 3, "openings": [the two fields above], "first": 0,
                               "start": 40, "is_sealed": false, "properties": {"owner": "billing"}}

The first says that an epoch is taken, and where its batches are. It is written once, after the opening's transaction
and before its first batch, at a key that had none: so no two openings have an epoch, even if the table was lost in
between. It is never deleted. The second has the head's appender as of a revision: before the transaction that creates
the stream, and after any that closes, seals, trims or recovers it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from coldstream.errors import BadCountError, CorruptionError, InvalidInputError
from coldstream.manifest.appender import Appender, Opening
from coldstream.manifest.appender_text import appender_json, appender_of_json, opening_json, opening_of_json
from coldstream.manifest.appending import appender_in
from coldstream.manifest.entry import Head
from coldstream.store.notes import VERSION, note_fields

_OPENING = ("epoch", "wal")
_DIRECT = ("revision", "epoch", "openings", "first", "start", "is_sealed", "properties")


@dataclass(frozen=True, slots=True)
class DirectNote:
    """The appender of a head, as of its `note_revision`."""

    revision: int
    appender: Appender

    @classmethod
    def of(cls, head: Head) -> DirectNote:
        """Take it from a head. Raises StreamNotFoundError if a broker has the stream."""
        return cls(head.note_revision, appender_in(head))

    def to_bytes(self) -> bytes:
        """Write it."""
        return _json({"version": VERSION, "revision": self.revision, **appender_json(self.appender)})

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> DirectNote:
        """Read it. Raises CorruptionError."""
        content = note_fields(data, _DIRECT, source=source)
        try:
            revision = content.pop("revision")
            if type(revision) is not int or revision < 1:
                raise ValueError(f"{revision!r} is no revision")
            return cls(revision, appender_of_json(content))
        except (InvalidInputError, ValueError, TypeError, KeyError, AttributeError) as err:
            raise CorruptionError(source, 0, f"malformed: {err}") from err


def opening_bytes(opening: Opening) -> bytes:
    """Write the note of an opening; `parse_opening` is the inverse."""
    return _json({"version": VERSION, **opening_json(opening)})


def parse_opening(data: bytes, *, source: str) -> Opening:
    """Read the note of an opening. Raises CorruptionError."""
    try:
        return opening_of_json(note_fields(data, _OPENING, source=source))
    except (InvalidInputError, ValueError, TypeError, KeyError, AttributeError) as err:
        raise CorruptionError(source, 0, f"malformed: {err}") from err


def appender_of_notes(note: DirectNote | None, openings: Iterable[Opening], *, source: str) -> Appender | None:
    """Return what a stream's notes say of its appender: the last one, and the openings after it, by epoch.

    None for a broker's stream, which has no such note. An opening that was recovered or closed, without a note of that,
    is open again: whoever opens the stream next finds nothing new in its write-ahead log.

    Raises CorruptionError if there are openings and no note: what created the stream is gone.
    """
    openings = sorted(openings, key=lambda one: one.epoch)
    if note is None:
        if openings:
            raise BadCountError(source, 0, "notes of the direct stream", expected="1 or more", found=0)
        return None
    later = tuple(one for one in openings if one.epoch > note.appender.epoch)
    if not later:
        return note.appender
    return replace(note.appender, epoch=later[-1].epoch, openings=(*note.appender.openings, *later))


def _json(content: dict[str, object]) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode()
