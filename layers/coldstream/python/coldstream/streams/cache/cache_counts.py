"""`CacheCounts`: what a cache has done since it was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CacheCounts:
    """Counters of one cache. A hit is a read without a request.

    `gets` are reads of the archive's objects that succeeded, `get_bytes` the bytes of the objects in them.
    `read_ahead_bytes` were read before anybody asked, as they take memory; of these, `wasted_bytes` were evicted before
    anybody read them.
    """

    hits: int = 0
    misses: int = 0
    gets: int = 0
    get_bytes: int = 0
    read_ahead_bytes: int = 0
    wasted_bytes: int = 0
