"""What the stack and the processes that run its functions tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue to poll. `reports_failures` is whether the function answers with the messages that failed."""

    url: str
    arn: str
    batch_size: int
    reports_failures: bool


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """What a process needs to run a function; its code, layers and variables are in the process's environment.

    `http` is whether to serve it over HTTP, at `port`, any free one where that is 0.
    """

    name: str
    arn: str
    handler: str
    timeout_s: int
    memory_mb: int
    queues: tuple[QueueConfig, ...]
    http: bool
    port: int = 0

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> FunctionConfig:
        """Take a config out of the JSON made of it."""
        queues = tuple(QueueConfig(**queue) for queue in message["queues"])
        return cls(**{**message, "queues": queues})


@dataclass(frozen=True, slots=True)
class Handled:
    """A function was called, for a message of a queue or for an HTTP request.

    `event` is the message's body, or the request line and the status; `error` says why it failed, None when it did not.
    """

    function: str
    event: str
    seconds: float
    error: str | None = None
