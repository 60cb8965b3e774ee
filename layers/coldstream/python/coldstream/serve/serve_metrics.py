"""Counters of the server, in Prometheus's text format."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from coldstream.streams.metrics import GAUGES

if TYPE_CHECKING:
    from coldstream.serve.stream_host import StreamHost
    from coldstream.web.request_limits import RequestLimits


_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"})


class ServeMetrics:
    """What has been served. For one event loop."""

    def __init__(self, host: StreamHost, limits: RequestLimits) -> None:
        self.sent_bytes = 0
        self._host = host
        self._limits = limits
        self._requests: Counter[tuple[str, int]] = Counter()
        self._took_s: Counter[str] = Counter()

    def count(self, method: str, status: int, took_s: float) -> None:
        """Count a request that was answered; status 0 is one whose client left before."""
        if method not in _METHODS:
            method = "other"  # clients make up as many as they like
        self._requests[method, status] += 1
        self._took_s[method] += took_s  # type: ignore[assignment]  # a Counter of floats adds as one of ints does

    def text(self) -> str:
        """Return everything, that of the streams' client included: `StreamMetrics` says what it is."""
        lines = ["# TYPE coldstream_serve_requests_total counter"]
        for (method, status), count in sorted(self._requests.items()):
            lines.append(f'coldstream_serve_requests_total{{method="{method}",status="{status}"}} {count}')
        lines.append("# TYPE coldstream_serve_request_seconds_total counter")
        for method, took_s in sorted(self._took_s.items()):
            lines.append(f'coldstream_serve_request_seconds_total{{method="{method}"}} {took_s:.6f}')
        lines += [
            "# TYPE coldstream_serve_sent_bytes_total counter",
            f"coldstream_serve_sent_bytes_total {self.sent_bytes}",
            "# TYPE coldstream_serve_live_reads gauge",
            f"coldstream_serve_live_reads {self._limits.live_reads}",
            "# TYPE coldstream_serve_buffered_bytes gauge",
            f"coldstream_serve_buffered_bytes {self._limits.buffered_bytes}",
            "# TYPE coldstream_serve_open_streams gauge",
            f"coldstream_serve_open_streams {len(self._host)}",
        ]
        for name, value in asdict(self._host.client.metrics()).items():
            kind, suffix = ("gauge", "") if name in GAUGES else ("counter", "_total")
            lines += [
                f"# TYPE coldstream_streams_{name}{suffix} {kind}",
                f"coldstream_streams_{name}{suffix} {value if isinstance(value, int) else f'{value:.6f}'}",
            ]
        return "\n".join(lines) + "\n"
