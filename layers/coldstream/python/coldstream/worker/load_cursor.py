"""The cursor of jobs that read archived streams to their end: where each incarnation began, ends, and is.

What an attempt needs to do the same as the one before is fixed when the run comes to a stream: its first offset, and
the reference under which it is published. So a broker that has some of it already takes only the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from coldstream.errors import CorruptionError, InvalidInputError
from coldstream.jobs.job import MAX_CURSOR_BYTES
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import Offset, TimestampMs

_VERSION = 1
_ROOM_BYTES = 40
"""What the position of a stream may grow by: digits of its offsets."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far one incarnation is: of the offsets `start` up to `end`, all before `done_to` are at the target.

    `first` is the first of them that was archived at the beginning. `end` was found for the text `end_text`. It
    `is_final` unless the stream is followed and may go on. `late` messages before `done_to`, the first of the time
    `late_from`, were passed over because they come after the window's end.
    """

    stream: StreamId
    start: Offset
    first: Offset
    done_to: Offset
    end: Offset
    end_text: str | None = None
    publisher: str = ""
    is_final: bool = False
    late: int = 0
    late_from: TimestampMs | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_final and self.done_to >= self.end

    @property
    def offsets(self) -> int:
        """How many offsets there are between its beginning and its end."""
        return max(0, self.end - self.first)

    @property
    def done(self) -> int:
        """How many of them are done."""
        return min(self.offsets, max(0, self.done_to - self.first))

    def to_list(self) -> list[Any]:
        """Return it for JSON, short: a cursor may have a thousand of them."""
        numbers = [self.start, self.first, self.done_to, self.end]
        return [
            *(self.stream.name, *numbers, self.end_text, self.publisher, int(self.is_final)),
            *([self.late, self.late_from] if self.late else []),
        ]

    @classmethod
    def from_list(cls, vhost: str, incarnation: str, found: list[Any]) -> Self:
        """Read it back."""
        name, start, first, done_to, end, end_text, publisher, is_final, *late = found
        offsets = (Offset(start), Offset(first), Offset(done_to), Offset(end))
        stream = StreamId(vhost, name, Incarnation(incarnation))
        return cls(stream, *offsets, end_text, publisher, bool(is_final), *late)


@dataclass(frozen=True, slots=True)
class LoadCursor:
    """The positions of a run, by incarnation, in the order of the work. `window` is its identity when it began."""

    positions: Mapping[str, StreamPosition]
    window: str = ""

    @classmethod
    def from_mapping(cls, vhost: str, found: Mapping[str, Any]) -> Self:
        """Read a job's cursor; an empty one has no positions. Raises CorruptionError."""
        if not found:
            return cls({})
        try:
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']} is of another release")
            streams = found["streams"].items()
            return cls({key: StreamPosition.from_list(vhost, key, one) for key, one in streams}, found["window"])
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise CorruptionError("the job's cursor", 0, f"malformed: {err}") from err

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a job's cursor."""
        streams = {key: position.to_list() for key, position in self.positions.items()}
        return {"version": _VERSION, "window": self.window, "streams": streams}

    def with_position(self, position: StreamPosition) -> Self:
        """Return the cursor with a stream at another place."""
        return replace(self, positions={**self.positions, position.stream.incarnation: position})

    def check_size(self) -> None:
        """Raise InvalidInputError if an item could not hold the cursor to the end of the run."""
        size_bytes = len(json.dumps(self.to_mapping())) + _ROOM_BYTES * len(self.positions)
        if size_bytes > MAX_CURSOR_BYTES:
            raise InvalidInputError(
                "streams",
                f"mean {len(self.positions)} streams, whose positions are {size_bytes} bytes, of {MAX_CURSOR_BYTES} at"
                " most: make several jobs of it",
            )
