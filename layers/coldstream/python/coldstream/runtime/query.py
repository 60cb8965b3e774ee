"""Queries for ranges, as API Gateway hands them over.

Powertools' validation, which takes a third of a second to load, says what is wrong with a query. Most have nothing
wrong, and show it: those are read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from coldstream.errors import InvalidQueryError
from coldstream.manifest.spec import AtEnd, AtOffset, AtTimestamp, OffsetSpec
from coldstream.resolve.answer import Bounds, Continue, RangesQuery
from coldstream.units import Offset, parse_timestamp

SIGNATURE = "X-Amz-"
"""Begins the parameters of a request that is signed in its query."""

_TEXT = re.compile(r"[^,]*", re.DOTALL)
"""A comma may be the client's or API Gateway's, between values of a parameter that was given twice."""

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
"""What each parameter of /ranges may be without anybody having to look twice."""


def plain_query(event: Mapping[str, Any]) -> RangesQuery | None:
    """Read an event (payload format 2.0) that plainly asks for ranges; None for any other, which may be right as well.

    Raises InvalidQueryError where parameters do not go together.
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


def start_of(
    *, spec: Literal["first", "last", "next"] | None, offset: str | None, timestamp: str | None, cursor: str | None
) -> OffsetSpec | Continue:
    """Return the one start of these that is given. Raises InvalidQueryError."""
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
