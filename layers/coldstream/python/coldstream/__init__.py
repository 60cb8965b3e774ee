"""Bottomless retention on S3 for RabbitMQ Streams."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldstream.consumer.blocking import BlockingConsumer
    from coldstream.consumer.consumer import Consumer

__version__ = "0.1.0"

__all__ = ["BlockingConsumer", "Consumer"]

_MODULES = {"BlockingConsumer": "coldstream.consumer.blocking", "Consumer": "coldstream.consumer.consumer"}


def __getattr__(name: str) -> Any:
    """Import the consumer when it is first asked for: importing coldstream stays cheap, and goes without rstream.

    Raises MissingExtraError, an ImportError, where that is not installed.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_MODULES[name])
    except ModuleNotFoundError as err:
        from coldstream.console.extras import missing_extra  # noqa: PLC0415  seldom needed

        if (missing := missing_extra(err)) is None:
            raise
        raise missing from err
    return getattr(module, name)
