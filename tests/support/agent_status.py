"""Snapshots of an agent, whole but for what a test says."""

from __future__ import annotations

from typing import Any

from coldstream.agent.monitor.status import AgentStatus, StreamStatus
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs

NOW = TimestampMs(1_763_700_000_000)
ORDERS = Incarnation("__orders_1763700000000000000")


def stream_status(**fields: Any) -> StreamStatus:
    """Make a snapshot of stream `orders`: 1,000 offsets pinned, of which 600 are archived."""
    defaults: dict[str, Any] = {
        "incarnation": ORDERS,
        "vhost": "/",
        "name": "orders",
        "state": "announced",
        "disk_from": Offset(100),
        "disk_to": Offset(1100),
        "committed_to": Offset(1000),
        "archived_to": Offset(700),
        "pinned_segments": 3,
        "pinned_bytes": 3000,
        "orphaned_bytes": 1000,
        "oldest_unarchived_at": NOW - 90_000,
        "retention_left_s": 3600.0,
    }
    return StreamStatus(**defaults | fields)


def agent_status(*streams: StreamStatus, **fields: Any) -> AgentStatus:
    """Make a snapshot of an agent with these streams."""
    defaults: dict[str, Any] = {
        "at": NOW,
        "started_at": NOW - 7_200_000,
        "version": "0.1.0",
        "host": "node-1",
        "disk_free_bytes": 40 << 30,
        "disk_total_bytes": 100 << 30,
        "max_lag_s": 60.0,
        "problems": (),
        "settings": (("state", "/var/lib/rabbitmq/coldstream"),),
        "log_objects": 190,
        "logged_at": NOW - 20_000,
        "streams": streams,
    }
    return AgentStatus(**defaults | fields)
