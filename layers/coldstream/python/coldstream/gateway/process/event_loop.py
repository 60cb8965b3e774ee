"""Which event loop a process runs: uvloop's if it is installed, else Python's own."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Coroutine
from typing import Any

VARIABLE = "COLDSTREAM_GATEWAY_LOOP"
"""`asyncio` forces Python's own, for a comparison; anything else lets it be chosen."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop, None for Python's own."""
    if os.environ.get(VARIABLE) == "asyncio":
        return None
    try:
        uvloop = importlib.import_module("uvloop")
    except ModuleNotFoundError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


def run_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a new loop to its end."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
