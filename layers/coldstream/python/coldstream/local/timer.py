"""A schedule that calls a function: at once, and then every so many seconds, never twice at a time."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from coldstream.local.function_protocol import InvocationReport

EVENT = "schedule"


def call_every(
    every_s: float,
    *,
    function: str,
    invoke: Callable[[dict[str, Any]], Any],
    report: Callable[[InvocationReport], None],
    stop: threading.Event,
) -> None:
    """Call a function until `stop` is set. What fails is reported, and the next call comes all the same."""
    while True:
        started = time.perf_counter()
        try:
            invoke({})
        except Exception as err:  # noqa: BLE001  whatever a handler raises
            traceback.print_exc()
            error = f"{type(err).__name__}: {err}"
            report(InvocationReport(function, EVENT, time.perf_counter() - started, error))
        if stop.wait(every_s):
            return
