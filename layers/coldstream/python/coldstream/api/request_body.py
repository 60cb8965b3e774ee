"""The body of a request: one JSON object, of a bounded size, in which no name comes twice."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from coldstream.errors import InvalidInputError, MediaTypeError
from coldstream.units import KIB

MAX_BODY_BYTES = 256 * KIB
MAX_EXACT = 1 << 53
"""Up to here a float tells every integer from its neighbours."""


def json_object(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object that is a request's body (payload format 2.0).

    Raises MediaTypeError unless it says that it is JSON; InvalidInputError.
    """
    media_type = str((event.get("headers") or {}).get("content-type", "")).partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise MediaTypeError("content-type", f"is {media_type[:80] or 'not given'}: send application/json")
    body = _bytes(event)
    if len(body) > MAX_BODY_BYTES:
        raise InvalidInputError("body", f"has {len(body)} bytes, of {MAX_BODY_BYTES} at most")
    try:
        found = json.loads(body, object_pairs_hook=_without_repeats, parse_float=_number, parse_constant=_no_constant)
    except (ValueError, RecursionError) as err:
        raise InvalidInputError("body", f"is not JSON: {err}"[:500]) from err
    if not isinstance(found, dict):
        raise InvalidInputError("body", "is not a JSON object")
    return found


def no_body(event: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if a request has a body: whoever sends one means something by it."""
    if event.get("body"):
        raise InvalidInputError("body", "is not taken here: send none")


def _bytes(event: Mapping[str, Any]) -> bytes:
    body = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        return str(body).encode(errors="surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error) as err:
        raise InvalidInputError("body", "is not base64, as the event says") from err


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{repeated[:80]!r} comes twice")
    return found


def _number(text: str) -> float:
    """Read a number. 18.0 is 18: JSON knows no other difference between integers and others."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= MAX_EXACT else number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
