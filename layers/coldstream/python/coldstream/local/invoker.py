"""Calls of a handler as Lambda makes them: one event at a time, with a context."""

from __future__ import annotations

import importlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from coldstream.local.function_protocol import FunctionConfig

Handler = Callable[[dict[str, Any], "LambdaContext"], Any]


class LambdaContext:
    """The context of an invocation. The time that remains is told, not enforced."""

    client_context = None
    identity = None
    function_version = "$LATEST"

    def __init__(self, config: FunctionConfig) -> None:
        self.function_name = config.arn.rpartition(":")[2]
        self.invoked_function_arn = config.arn
        self.memory_limit_in_mb = config.memory_mb
        self.aws_request_id = str(uuid.uuid4())
        self.log_group_name = f"/aws/lambda/{self.function_name}"
        self.log_stream_name = "local"
        self._deadline = time.monotonic() + config.timeout_s

    def get_remaining_time_in_millis(self) -> int:
        """Return the rest of the function's timeout."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


class Invoker:
    """Calls a function's handler, one event at a time, as one execution environment of Lambda does."""

    def __init__(self, config: FunctionConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        # Lambda takes a path for the module, too, such as `package/app.handler`.
        module, _, name = config.handler.rpartition(".")
        self._handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), name)

    def __call__(self, event: dict[str, Any]) -> Any:
        """Call the handler, and raise what it raises.

        The queue's thread and the HTTP threads take turns: handlers may rely on one event at a time, as on Lambda.
        """
        with self._lock:
            return self._handler(event, LambdaContext(self._config))
