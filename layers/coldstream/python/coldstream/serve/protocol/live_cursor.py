"""Cursors of live reads: requests of one interval share an address, and so a cache's answer; those of the next don't.

A cursor is the number of the 20 s interval since 2024-10-09. A client that sends the current one, or a later one, has
been answered in this interval already: it gets a later one, by chance up to an hour, and never runs in a circle.
"""

from __future__ import annotations

import random

from coldstream.errors import InvalidQueryError
from coldstream.units import TimestampMs

INTERVAL_MS = 20_000
ORIGIN_MS = 1_728_432_000_000
MAX_JITTER_INTERVALS = 180
_MAX_DIGITS = 15


def next_cursor(now: TimestampMs, sent: str | None) -> str:
    """Return the cursor of an answer to a request that came with `sent`. Raises InvalidQueryError."""
    current = max(0, now - ORIGIN_MS) // INTERVAL_MS
    if not sent:
        return str(current)
    if not (sent.isascii() and sent.isdigit() and len(sent) <= _MAX_DIGITS):
        raise InvalidQueryError("cursor", f"{sent[:40]!r} is no cursor")
    asked = int(sent)
    if asked < current:
        return str(current)
    return str(asked + random.randint(1, MAX_JITTER_INTERVALS))  # noqa: S311  spreads clients, keeps no secret
