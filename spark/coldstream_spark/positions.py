"""The positions of a streaming query, as Spark keeps them in its checkpoint.

{"streams": {name: {"incarnation": incarnation, "offset": next offset to read}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coldstream.errors import InvalidInputError, InvalidQueryError
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.units import MAX_OFFSET, Offset


@dataclass(frozen=True, slots=True)
class Position:
    """The offset up to which, itself not included, one incarnation of a stream has been read."""

    stream: StreamId
    offset: Offset


Positions = Mapping[str, Position]
"""By the name of the stream. A stream that is missing here is read from its first archived offset on."""


def never_back(before: Positions, now: Positions) -> Positions:
    """Return the later of two positions of a query, stream by stream.

    A stream that is missing in `now` stays, too: if it were dropped and came back, it would be read twice.
    """
    return {**before, **{name: one for name, one in now.items() if _is_before(before.get(name), one)}}


def is_past(now: Positions, ends: Positions) -> bool:
    """Return whether a query at `now` has read everything up to `ends`."""
    return all(not _is_before(now.get(name), end) for name, end in ends.items())


def _is_before(now: Position | None, end: Position) -> bool:
    return now is None or now.stream != end.stream or now.offset < end.offset


def to_json(positions: Positions) -> dict[str, Any]:
    """Return the JSON that Spark stores, the same for the same positions."""
    return {
        "streams": {
            name: {"incarnation": one.stream.incarnation, "offset": int(one.offset)}
            for name, one in sorted(positions.items())
        }
    }


def from_json(content: Any, vhost: str) -> Positions:
    """Parse what `to_json` returned. Raises InvalidQueryError for anything else."""
    try:
        found = {}
        for name, one in content["streams"].items():
            offset = one["offset"]
            if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
                raise ValueError(f"offset {offset!r}")
            found[name] = Position(StreamId(vhost, name, incarnation(one["incarnation"])), Offset(offset))
    except (KeyError, TypeError, AttributeError, ValueError, InvalidInputError) as err:
        raise InvalidQueryError("checkpoint", f"was not written by this source: {err}") from err
    return found
