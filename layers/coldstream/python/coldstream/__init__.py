"""Bottomless retention on S3 for RabbitMQ Streams.

What programs need to read streams is here, and nothing else of the package is public:

    Consumer, BlockingConsumer    archive and broker as one stream, without end (extra `consumer`)
    Reader, AsyncReader           the archive alone, up to its tail
    ShardedReader                 the same of a sharded stream, by its map (`ResolverClient.shard_map`)
    FIRST, LAST, NEXT, AtOffset, AtTimestamp      where to start
    ShardPosition                 where reading stands in a sharded stream
    Offset, TimestampMs                           integers, by names that type checkers tell apart
    ResolverClient, BrokerAddress                 connections to share, or with more than a URL says
    Message, MessageDelivery, Chunk, Gap          what readers give
    the errors                                    what to catch; `coldstream.errors` draws the tree

Each name is imported when it is first used: `import coldstream` stays cheap and works without any extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldstream.consumer.blocking import BlockingConsumer
    from coldstream.consumer.consumer import Consumer
    from coldstream.consumer.items import MessageDelivery
    from coldstream.errors import (
        AccessDeniedError,
        ColdstreamError,
        CorruptionError,
        GapError,
        IncarnationError,
        InvalidInputError,
        NotOwnerError,
        StreamNotFoundError,
        UnavailableError,
    )
    from coldstream.format.amqp.message import Message
    from coldstream.format.chunk import Chunk
    from coldstream.groups.consumer_group import ConsumerGroup
    from coldstream.live.address import BrokerAddress
    from coldstream.manifest.entry import Gap
    from coldstream.manifest.shard_position import ShardPosition
    from coldstream.manifest.spec import FIRST, LAST, NEXT, AtOffset, AtTimestamp
    from coldstream.read.aio import AsyncReader
    from coldstream.read.client import ResolverClient
    from coldstream.read.http import ClosedError
    from coldstream.read.reader import Reader
    from coldstream.read.sharded import ShardedReader
    from coldstream.units import Offset, TimestampMs

__version__ = "0.1.0"

__all__ = [
    "FIRST",
    "LAST",
    "NEXT",
    "AccessDeniedError",
    "AsyncReader",
    "AtOffset",
    "AtTimestamp",
    "BlockingConsumer",
    "BrokerAddress",
    "Chunk",
    "ClosedError",
    "ColdstreamError",
    "Consumer",
    "ConsumerGroup",
    "CorruptionError",
    "Gap",
    "GapError",
    "IncarnationError",
    "InvalidInputError",
    "Message",
    "MessageDelivery",
    "NotOwnerError",
    "Offset",
    "Reader",
    "ResolverClient",
    "ShardPosition",
    "ShardedReader",
    "StreamNotFoundError",
    "TimestampMs",
    "UnavailableError",
]

# mypy holds the imports above against `__all__`; tests/test_public.py holds these homes against both.
_HOMES = {
    "AsyncReader": "read.aio",
    "AtOffset": "manifest.spec",
    "AtTimestamp": "manifest.spec",
    "BlockingConsumer": "consumer.blocking",
    "BrokerAddress": "live.address",
    "Chunk": "format.chunk",
    "ClosedError": "read.http",
    "Consumer": "consumer.consumer",
    "ConsumerGroup": "groups.consumer_group",
    "FIRST": "manifest.spec",
    "Gap": "manifest.entry",
    "LAST": "manifest.spec",
    "Message": "format.amqp.message",
    "MessageDelivery": "consumer.items",
    "NEXT": "manifest.spec",
    "Offset": "units",
    "Reader": "read.reader",
    "ResolverClient": "read.client",
    "ShardPosition": "manifest.shard_position",
    "ShardedReader": "read.sharded",
    "TimestampMs": "units",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used. Raises MissingExtraError, an ImportError, without its extra."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"coldstream.{_HOMES.get(name, 'errors')}")
    except ModuleNotFoundError as err:
        # Only now: it is seldom needed, and imports more of the package.
        from coldstream.terminal.extras import missing_extra  # noqa: PLC0415

        if (missing := missing_extra(err)) is None:
            raise
        raise missing from err
    return getattr(module, name)


def __dir__() -> list[str]:
    """Name what can be imported, for completion: most of it is not in the module yet."""
    return sorted({*globals(), *__all__})
