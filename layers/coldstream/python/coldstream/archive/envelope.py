"""The envelope in which EventBridge carries the agent's events: their types, and who sent them."""

from __future__ import annotations

from typing import Any, Literal

from coldstream.errors import InvalidEventError, InvalidNameError
from coldstream.manifest.cluster import NO_CLUSTER, Cluster, agents_cluster

SOURCE = "coldstream.agent"
"""The source of agents without a cluster. Agents of a cluster append a dot and its name."""

DETAIL_TYPE = "Segment Rolled"
LOST_DETAIL_TYPE = "Segment Lost"
VERSION: Literal[1] = 1
"""The version of the schemas of both."""


def source_of(announcing: Cluster) -> str:
    """Return the source of a cluster's events. IAM policies hold agents to it, by the condition key `events:source`."""
    return f"{SOURCE}.{announcing}" if announcing else SOURCE


def cluster_of(source: Any) -> Cluster:
    """Return the cluster whose agents send with a source. Raises InvalidEventError if no agent sends with it."""
    if source == SOURCE:
        return NO_CLUSTER
    if not isinstance(source, str) or not source.startswith(f"{SOURCE}."):
        raise InvalidEventError("source", f"is {source!r}, not {SOURCE!r}, nor {SOURCE!r} with a dot and a cluster")
    try:
        return agents_cluster(source.removeprefix(f"{SOURCE}."))
    except InvalidNameError as err:
        raise InvalidEventError("source", err.problem) from err
