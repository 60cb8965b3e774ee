"""What connections hold that do nothing."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import ExitStack

from bench.gateway_process import gateway
from bench.gateway_runs import GatewayTable
from bench.gateway_tls import TlsFiles
from bench.harness import Aim
from bench.stream_client import LeanConnection, unchecked_tls

IDLE_CONNECTIONS, WARM_CONNECTIONS, SETTLE_S = 1_000, 50, 2
AIM_KB = 40


def measure_idle(broker_port: int, files: TlsFiles, settings: Mapping[str, str], table: GatewayTable) -> None:
    """Measure it without TLS, and with TLS to clients."""
    plain = _kb_each(broker_port, settings)
    table.rows.append((f"{IDLE_CONNECTIONS:,} idle connections", "KB each", "", plain, "", "", ""))
    table.aims.append(Aim(f"less than {AIM_KB} KB of memory for an idle connection", f"{plain:.1f} KB", plain < AIM_KB))
    with_tls = _kb_each(broker_port, settings, *files.server_options, tls=unchecked_tls())
    table.rows.append((f"{IDLE_CONNECTIONS:,} idle connections, TLS to clients", "KB each", "", with_tls, "", "", ""))


def _kb_each(broker_port: int, settings: Mapping[str, str], *options: str, tls: ssl.SSLContext | None = None) -> float:
    """Measure what a new process holds more with many connections than with some."""
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(broker_port, settings, *options))

        def connect(count: int) -> None:
            for _ in range(count):
                stack.callback(LeanConnection(ours.port, tls=tls).close)

        connect(WARM_CONNECTIONS)
        time.sleep(SETTLE_S)
        before = ours.rss_bytes
        connect(IDLE_CONNECTIONS)
        time.sleep(SETTLE_S)
        return (ours.rss_bytes - before) / IDLE_CONNECTIONS / 1000
