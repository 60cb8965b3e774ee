"""A gateway's status for tests: two processes, one of which serves."""

from __future__ import annotations

from collections import Counter
from typing import Any

from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.channel import ChildReport
from coldstream.gateway.process.status import GatewayStatus, ProcessStatus
from coldstream.units import TimestampMs

BUSY = ChildReport(
    GatewayFigures(
        connections=3,
        connections_total=9,
        bytes_to_clients_total=5 << 20,
        cold_subscriptions=2,
        live_subscriptions=1,
        takeovers_total=4,
        handovers_total=2,
        returns_total=1,
        gaps_total=Counter(skip=1),
        archive_bytes_total=1 << 20,
        archive_failures_total=Counter(unavailable=2),
        memory_used_bytes=8 << 20,
        memory_budget_bytes=128 << 20,
        lag_offsets=700,
    ),
    70 << 20,
    (ColdRow("10.0.0.7:40000", "/", "orders", 300, 700), ColdRow("10.0.0.8:40001", "/", "заказы", 5, 7)),
)
IDLE = ChildReport(GatewayFigures(memory_budget_bytes=128 << 20), 60 << 20)


def gateway_status(**changes: Any) -> GatewayStatus:
    values: dict[str, Any] = {
        "version": "1.2.3",
        "at": TimestampMs(1_763_700_000_000),
        "up_s": 90.0,
        "listen": "0.0.0.0:5552",
        "mode": "proxy",
        "is_draining": False,
        "problems": (),
        "restarts": 1,
        "processes": (ProcessStatus(0, 17, True, 0.4, BUSY), ProcessStatus(1, 18, True, 0.2, IDLE)),
        "ended": GatewayFigures(takeovers_total=10),
        "memory_bytes": 256 << 20,
    }
    return GatewayStatus(**(values | changes))
