"""What a shell completes beside commands and options: the names of streams, where the resolver tells them at once."""

from __future__ import annotations

import os
import threading

WITHIN_S = 1.5
"""Who presses Tab does not wait for long."""


def stream_names(incomplete: str) -> list[str]:
    """Return the archived streams that begin so; none where the resolver is not known, or does not answer in time."""
    found: list[str] = []
    asking = threading.Thread(target=_ask, args=(os.environ.get("COLDSTREAM_RESOLVER_URL", ""), found), daemon=True)
    asking.start()
    asking.join(WITHIN_S)
    return sorted({name for name in found if name.startswith(incomplete)})


def _ask(resolver: str, found: list[str]) -> None:
    from coldstream.errors import ColdstreamError
    from coldstream.read.client import ResolverClient

    try:
        with ResolverClient(resolver) as client:
            found += [stream.name for stream in client.streams().streams]
    except ColdstreamError:
        return
