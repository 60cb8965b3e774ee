"""How many file descriptors a process may have: shells and some service managers allow 1024 unless they are asked."""

from __future__ import annotations

import logging
import resource

BESIDE_CONNECTIONS = 1_088
"""Handshakes of TLS, 512; requests to S3 and the table, 512; files, and what listens."""

OF_CONNECTION = 2
"""The client's socket, and the broker's."""

_LOG = logging.getLogger(__name__)


def allow_descriptors(connections: int) -> None:
    """Raise the soft limit to what so many connections need, as far as the hard limit goes; warn if that is less."""
    needed = OF_CONNECTION * connections + BESIDE_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return
    allowed = needed if hard == unlimited else min(needed, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        _LOG.warning(
            "not enough file descriptors are allowed for --max-connections: raise the hard limit, LimitNOFILE",
            extra={"allowed": allowed, "needed": needed, "connections": connections},
        )
