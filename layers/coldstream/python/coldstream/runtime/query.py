"""Queries for ranges, read from API Gateway's events.

Powertools' validation says what is wrong with a query, but takes a third of a second to load. Most queries are plainly
valid, and are read here without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from coldstream.errors import InvalidQueryError
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.resolve.answer import Bounds, Continue, RangesQuery
from coldstream.units import Offset, parse_timestamp

if TYPE_CHECKING:
    from coldstream.manifest.shard_position import ShardPosition

SIGNATURE = "X-Amz-"
"""Prefix of the parameters that sign a request in its query."""

MAX_POSITION_CHARACTERS = 120_000
"""More than four thousand partitions of the greatest offsets need."""

_TEXT = re.compile(r"[^,]*", re.DOTALL)
"""No comma: it may be the client's own, or one by which API Gateway joins the values of a repeated parameter."""

_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

_PLAIN = {
    "vhost": _TEXT,
    "name": _TEXT,
    "incarnation": _TEXT,
    "spec": re.compile(r"first|last|next"),
    "offset": re.compile(r"[0-9]{1,20}"),
    "timestamp": _TEXT,
    "cursor": _TEXT,
    "max_ranges": re.compile(r"[1-9][0-9]{0,2}|1000"),
    "max_bytes": _NUMBER,
    "range_bytes": _NUMBER,
    "precise": re.compile(r"true|false"),
}
"""The values of each parameter of /ranges that are plainly valid. Powertools judges any other."""


def plain_query(event: Mapping[str, Any]) -> RangesQuery | None:
    """Read an event (payload format 2.0) that plainly asks for ranges. Any other, valid or not, gives None.

    Raises InvalidQueryError if parameters exclude each other.
    """
    request = event.get("requestContext", {})
    method = request.get("http", {}).get("method")
    if (event.get("rawPath"), method, request.get("stage")) != ("/ranges", "GET", "$default"):
        return None
    given = {
        name: value
        for name, value in (event.get("queryStringParameters") or {}).items()
        if not name.startswith(SIGNATURE)
    }
    if not given.keys() >= {"vhost", "name"} or not given.keys() <= _PLAIN.keys():
        return None
    if not all(_PLAIN[name].fullmatch(value) for name, value in given.items()):
        return None
    bounds = {name: int(given[name]) for name in ("max_ranges", "max_bytes", "range_bytes") if name in given}
    return RangesQuery(
        vhost=given["vhost"],
        name=given["name"],
        start=start_of(
            spec=given.get("spec"),
            offset=given.get("offset"),
            timestamp=given.get("timestamp"),
            cursor=given.get("cursor"),
        ),
        incarnation=given.get("incarnation"),
        bounds=Bounds(**bounds),
        precise=given.get("precise") == "true",
    )


def super_start_of(
    *,
    spec: Literal["first", "last", "next"] | None,
    position: str | None,
    timestamp: str | None,
    cursor: str | None,
) -> AtEnd | AtTimestamp | ShardPosition | Continue:
    """Return the one of these starts in a sharded stream that is given. Raises InvalidQueryError, as `start_of`."""
    from coldstream.manifest.shard_position import ShardPosition  # noqa: PLC0415  # no query for one stream needs it

    if position is None:
        start = start_of(spec=spec, offset=None, timestamp=timestamp, cursor=cursor)
        assert not isinstance(start, AtOffset)
        return start
    if (spec, timestamp, cursor) != (None, None, None):
        raise InvalidQueryError("position", "give one of position, spec, timestamp and cursor")
    if len(position) > MAX_POSITION_CHARACTERS:
        raise InvalidQueryError("position", f"has {len(position)} characters, of {MAX_POSITION_CHARACTERS} at most")
    return ShardPosition.from_text(position)


def start_of(
    *, spec: Literal["first", "last", "next"] | None, offset: str | None, timestamp: str | None, cursor: str | None
) -> OffsetSpec | Continue:
    """Return the one of these starts that is given. Raises InvalidQueryError unless there is exactly one."""
    starts: list[OffsetSpec | Continue] = []
    if spec is not None:
        starts.append(AtEnd(spec))
    if offset is not None:
        starts.append(AtOffset(Offset(int(offset))))
    if timestamp is not None:
        try:
            starts.append(AtTimestamp(parse_timestamp(timestamp)))
        except ValueError as err:
            raise InvalidQueryError("timestamp", str(err)) from err
    if cursor is not None:
        starts.append(Continue(cursor))
    if len(starts) != 1:
        raise InvalidQueryError("spec", f"give one of spec, offset, timestamp and cursor, not {len(starts)} of them")
    return starts[0]
