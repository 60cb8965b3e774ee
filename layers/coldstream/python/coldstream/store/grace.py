"""The time of grace: how long an object stays after its entry was removed, for readers that still have its URL."""

from __future__ import annotations

import math

from coldstream.errors import InvalidSettingError
from coldstream.store.settings import MAX_URL_EXPIRY_S
from coldstream.units import parse_duration

MARGIN_MS = 3600 * 1000
"""A URL may be signed right after the removal, by a resolver that read the entry right before it, and a download that
has begun is not cut off when its URL expires."""


def grace_ms(url_expiry_s: int) -> int:
    """Return the grace for URLs that are valid for `url_expiry_s`: past it, each that was signed has expired."""
    return url_expiry_s * 1000 + MARGIN_MS


LONGEST_GRACE_MS = grace_ms(MAX_URL_EXPIRY_S)
"""The grace for a caller that does not know the resolvers' settings: no URL is valid for longer."""


def read_grace_ms(url_expiry: str) -> int:
    """Return the grace for URLs that are valid as long as a user says, such as 1h. Raises InvalidSettingError."""
    try:
        expiry_s = math.ceil(parse_duration(url_expiry))
    except ValueError as err:
        raise InvalidSettingError("--url-expiry", str(err)) from err
    if not 1 <= expiry_s <= MAX_URL_EXPIRY_S:
        raise InvalidSettingError("--url-expiry", "must be from 1s to 7d")
    return grace_ms(expiry_s)
