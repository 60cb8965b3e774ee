"""Clusters that share an archive: each announces its own streams, and nobody else's.

A cluster is a name that its agents are configured with. AWS holds them to it by the source of their events and the
prefix that they may stage to. A stream, by vhost and name, is bound to the first cluster that announces it. Agents
without a cluster belong to NO_CLUSTER, and streams that only they announced are bound to no cluster. Direct streams are
bound to DIRECT_CLUSTER, which no agent can have: nobody announces segments of them.
"""

from __future__ import annotations

import re
from typing import NewType

from coldstream.errors import InvalidNameError, OtherClusterError
from coldstream.manifest.stream import StreamId

Cluster = NewType("Cluster", str)

NO_CLUSTER = Cluster("")
DIRECT_CLUSTER = Cluster("direct")

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")


def cluster(text: str) -> Cluster:
    """Return a text as a cluster. Raises InvalidNameError unless keys, events and policies can hold it."""
    if not _CLUSTER.fullmatch(text):
        raise InvalidNameError(
            "cluster", f"{text[:80]!r} is not 1 to 63 characters of A-Z a-z 0-9 -, the first of them no hyphen"
        )
    return Cluster(text)


def agents_cluster(text: str) -> Cluster:
    """Return a text as the cluster of an agent. Raises InvalidNameError if no agent can have it."""
    if text == DIRECT_CLUSTER:
        raise InvalidNameError("cluster", f"{text!r} is that of the streams that are appended to without a broker")
    return cluster(text)


def check_cluster(stream: StreamId, bound: Cluster, announcing: Cluster) -> None:
    """Raise OtherClusterError if the stream is bound to another cluster than `announcing`."""
    if bound not in {NO_CLUSTER, announcing}:
        raise OtherClusterError(stream.vhost, stream.name, bound, announcing)
