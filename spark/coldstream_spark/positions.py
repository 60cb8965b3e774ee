"""Positions of a streaming query, as Spark keeps them in its checkpoint.

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
    """Up to which offset, itself not included, a life of a stream has been read."""

    stream: StreamId
    offset: Offset


Positions = Mapping[str, Position]
"""By the name of the stream; one that is not there is read from its first archived offset on."""


def to_json(positions: Positions) -> dict[str, Any]:
    """Return what Spark writes down, the same for the same positions."""
    return {
        "streams": {
            name: {"incarnation": one.stream.incarnation, "offset": int(one.offset)}
            for name, one in sorted(positions.items())
        }
    }


def from_json(content: Any, vhost: str) -> Positions:
    """Read what `to_json` wrote. Raises InvalidQueryError for anything else."""
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
