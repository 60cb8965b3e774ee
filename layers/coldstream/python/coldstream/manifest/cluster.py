"""Clusters that share an archive: each announces its own streams, and nobody else's.

A cluster is a name that its agents are told, and that AWS holds them to: the source of their events and the prefix that
they may stage to. The names of a stream, vhost and name, are bound to the first cluster that announces it. Agents that
are told no name are of the cluster "", and streams that only those announced are bound to nobody.
"""

from __future__ import annotations

import re
from typing import NewType

from coldstream.errors import InvalidNameError, OtherClusterError
from coldstream.manifest.stream import StreamId

Cluster = NewType("Cluster", str)

NO_CLUSTER = Cluster("")

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


def cluster(text: str) -> Cluster:
    """Take a name of a cluster. Raises InvalidNameError unless it is one that keys, events and policies can hold."""
    if not _CLUSTER.fullmatch(text):
        raise InvalidNameError(
            "cluster", f"{text[:80]!r} is not 1 to 63 characters of A-Z a-z 0-9 -, the first of them no hyphen"
        )
    return Cluster(text)


def check_cluster(stream: StreamId, bound: Cluster, announcing: Cluster) -> None:
    """Raise OtherClusterError unless a stream, bound to a cluster or to nobody, may be announced by `announcing`."""
    if bound not in {NO_CLUSTER, announcing}:
        raise OtherClusterError(stream.vhost, stream.name, bound, announcing)
