"""How far the rebuild of a stream is: a cursor of the table that is being written.

    {"version":1,"began":1763800000000,"at":null,"revision":12,"unread":1,"unreadable":[["KEY","REASON"]]}

`began` is when the rebuild began, by which all of its runs date tombstones. `at` is the time that is rebuilt. Once the
rebuild is done, `revision` is that of its last change; before that it is null. How far it is, the head tells. `unread`
counts the objects that could not be read, and `unreadable` has the first of them: no later run comes to them again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from coldstream.errors import CorruptionError
from coldstream.manifest.stream import Incarnation
from coldstream.plain_json import read_json
from coldstream.rebuild.facts import Doubt
from coldstream.units import TimestampMs

VERSION = 1

MAX_TOLD = 200
"""Unreadable objects that the cursor names: with their reasons they have to fit into an item of 400 KB."""

_MAX_REASON = 200


@dataclass(frozen=True, slots=True)
class Progress:
    """The cursor of one stream's rebuild."""

    began: TimestampMs
    at: TimestampMs | None = None
    revision: int | None = None
    unread: int = 0
    unreadable: tuple[Doubt, ...] = ()

    def to_bytes(self) -> bytes:
        """Encode; the inverse of `from_bytes`."""
        fields = {
            "version": VERSION,
            "began": self.began,
            "at": self.at,
            "revision": self.revision,
            "unread": self.unread,
            "unreadable": [(one.key, one.reason[:_MAX_REASON]) for one in self.unreadable[:MAX_TOLD]],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> Self:
        """Decode. Raises CorruptionError."""
        try:
            fields = read_json(data)
            if fields["version"] == VERSION:
                unreadable = tuple(Doubt(key, reason) for key, reason in fields.get("unreadable", ()))
                began, unread = TimestampMs(fields["began"]), fields.get("unread", 0)
                return cls(began, fields["at"], fields["revision"], unread, unreadable)
        except (ValueError, KeyError, TypeError) as err:
            raise CorruptionError(source, 0, f"{data[:80]!r} is not the cursor of a rebuild") from err
        raise CorruptionError(source, 0, "version of a rebuild's cursor", expected=VERSION, found=fields["version"])


def cursor_of(incarnation: Incarnation) -> str:
    """Return the name of the cursor of a stream's rebuild."""
    return f"rebuild/{incarnation}"
