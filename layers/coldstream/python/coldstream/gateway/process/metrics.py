"""What a gateway counts, as Prometheus reads it: the sum over its processes, those that have ended included.

coldstream_gateway_ready                          1 if clients should be sent here
coldstream_gateway_draining
coldstream_gateway_processes                      that listen, and do not hang
coldstream_gateway_process_restarts_total
coldstream_gateway_resident_bytes                 memory of the processes that serve
coldstream_gateway_broker_up                      1 if the broker answers; absent in archive-only mode
coldstream_gateway_archive_up                     1 if the manifest table answers

The others are `COUNTS`, each a field of GatewayFigures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.gateway.gap_rules import GapAction
from coldstream.gateway.process.status import GatewayStatus

PREFIX = "coldstream_gateway_"


@dataclass(frozen=True, slots=True)
class GatewayMetric:
    """A field of the figures. `label` splits it, into `values` that are always there, also at 0."""

    field: str
    help: str
    label: str | None = None
    values: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The metric's name."""
        return PREFIX + self.field

    @property
    def kind(self) -> str:
        """The metric's type."""
        return "counter" if self.field.endswith("_total") else "gauge"


COUNTS = (
    GatewayMetric("connections", "Connections of clients that are open."),
    GatewayMetric("connections_total", "Connections of clients that were taken."),
    GatewayMetric("refused_connections_total", "Connections beyond --max-connections."),
    GatewayMetric("broker_failures_total", "Connections that lost their broker, or found none."),
    GatewayMetric("bytes_from_clients_total", "Bytes that clients sent."),
    GatewayMetric("bytes_to_clients_total", "Bytes that clients were sent."),
    GatewayMetric("cold_subscriptions", "Subscriptions that are served from the archive."),
    GatewayMetric("live_subscriptions", "Subscriptions that the broker serves."),
    GatewayMetric("takeovers_total", "Subscriptions that began in the archive."),
    GatewayMetric("handovers_total", "Subscriptions that went on from the archive to the broker."),
    GatewayMetric("returns_total", "Subscriptions that retention overtook, and that went on from the archive."),
    GatewayMetric("gaps_total", "Gaps that subscriptions met, by what was done.", "action", tuple(GapAction)),
    GatewayMetric("archive_chunks_total", "Chunks that clients were sent from the archive."),
    GatewayMetric("archive_bytes_total", "Bytes of these chunks."),
    GatewayMetric(
        "archive_failures_total",
        "Questions to table and bucket that failed.",
        "kind",
        ("corrupt", "denied", "other", "unavailable"),
    ),
    GatewayMetric("memory_used_bytes", "What cold subscriptions hold in memory."),
    GatewayMetric("memory_budget_bytes", "What they may hold."),
    GatewayMetric("lag_offsets", "How far the last of the cold subscriptions is from the archive's tail."),
)


def metrics_text(status: GatewayStatus, *, broker_up: bool | None, archive_up: bool) -> str:
    """Return everything. `broker_up` is None in archive-only mode."""
    lines = [
        *_one("ready", "gauge", "Whether clients should be sent here.", int(status.is_ready)),
        *_one("draining", "gauge", "Whether the gateway is about to end.", int(status.is_draining)),
        *_one(
            "processes",
            "gauge",
            "Processes that listen and do not hang.",
            sum(one.is_serving for one in status.processes),
        ),
        *_one("process_restarts_total", "counter", "Processes that ended and were started again.", status.restarts),
        *_one(
            "resident_bytes",
            "gauge",
            "Memory of the processes that serve.",
            sum(one.report.resident_bytes for one in status.processes),
        ),
        *_one("archive_up", "gauge", "Whether the manifest table answers.", int(archive_up)),
    ]
    if broker_up is not None:
        lines += _one("broker_up", "gauge", "Whether the broker answers.", int(broker_up))
    figures = status.figures()
    for metric in COUNTS:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        found: int | Counter[str] = getattr(figures, metric.field)
        if isinstance(found, Counter):
            values = sorted({*metric.values, *found})
            lines += [f'{metric.name}{{{metric.label}="{value}"}} {found[value]}' for value in values]
        else:
            lines.append(f"{metric.name} {found}")
    return "\n".join(lines) + "\n"


def _one(name: str, kind: str, about: str, value: int) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {about}"
    yield f"# TYPE {PREFIX}{name} {kind}"
    yield f"{PREFIX}{name} {value}"
