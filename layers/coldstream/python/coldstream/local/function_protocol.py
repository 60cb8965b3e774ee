"""The messages between the stack and the processes that run its functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue to poll. `reports_failures`: the function's answer lists the messages that failed."""

    url: str
    arn: str
    batch_size: int
    reports_failures: bool


@dataclass(frozen=True, slots=True)
class FunctionConfig:
    """What the stack tells a process of its function. Code, layers and variables are in the process's environment.

    `every_s` is how often a schedule calls it, None if none does.

    `http`: serve it over HTTP, at `port`; 0 is any free one. `prefix` is the path of its route, empty for the default
    route, whose function hands requests to the addresses of the others, `forwards`, by their prefixes.
    """

    name: str
    arn: str
    handler: str
    timeout_s: int
    memory_mb: int
    queues: tuple[QueueConfig, ...]
    http: bool
    every_s: float | None = None
    port: int = 0
    prefix: str = ""
    forwards: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> FunctionConfig:
        """Return the config that was sent as this JSON."""
        queues = tuple(QueueConfig(**queue) for queue in message["queues"])
        return cls(**{**message, "queues": queues})


@dataclass(frozen=True, slots=True)
class InvocationReport:
    """One call of a function, for a message of a queue or for an HTTP request.

    `event` is the message's body, or the request line and the status. `error` is None if the call succeeded.
    """

    function: str
    event: str
    seconds: float
    error: str | None = None
