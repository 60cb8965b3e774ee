"""The targets of a broker that a replay may have, and how to send to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coldstream.format.amqp.message import Message
from coldstream.live.address import BrokerAddress
from coldstream.manifest.entry import Gap
from coldstream.replay.arguments import ReplayArguments
from coldstream.replay.left_out import LeftOutReport
from coldstream.replay.routing import RoutingKey
from coldstream.replay.window import TimeWindow
from coldstream.units import Offset

_PUBLISHED_KEY = RoutingKey("message_annotations", "x-routing-key")


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """A stream of a broker, or with `routing_key` a super stream, where that key chooses the partition of a message.

    With `partitions` these streams are meant, and `place_of` chooses among them: always the same for a message.
    `broker` is the URI of the stream protocol (live.address). `publisher` is the reference to publish under, instead of
    the one that follows from the request.
    """

    broker: str = field(repr=False)  # it has a password
    name: str
    vhost: str = "/"
    routing_key: RoutingKey | None = None
    publisher: str | None = None
    partitions: tuple[str, ...] = ()
    place_of: Callable[[Message], int] | None = None

    @property
    def label(self) -> str:
        """What summaries call the target."""
        return self.name


@dataclass(frozen=True, slots=True)
class ExchangeTarget:
    """An exchange, "" for the default one. `broker` is a URI such as amqp://user:password@host:5672/vhost.

    `routing_key` says where a message has its key, unless told otherwise the one with which it was published;
    `default_key` is for messages without one. `progress` is the file that keeps how far the replay is; without it, each
    run begins at the start. A message for which no queue is bound ends the replay, unless `allow_unroutable` lets the
    broker drop it.
    """

    broker: str = field(repr=False)  # it has a password
    exchange: str
    routing_key: RoutingKey = _PUBLISHED_KEY
    default_key: str = ""
    progress: Path | None = None
    allow_unroutable: bool = False

    @property
    def label(self) -> str:
        """What summaries call the target."""
        return self.exchange


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How to send: at most `rate` messages a second, each through the function `transform`, `module:function`.

    Only messages of the `window` are sent. All before `resume_at` is known to be at the target, whatever the broker
    remembers, and all after it is read: also what the broker has, to tell what is left out of it. `on_gap` is told each
    gap that is skipped. With `on_left_out`, messages that cannot be sent are reported to it and left out: erased ones,
    those without a key in a super stream, and those that an exchange has no queue for.
    `before_send` is called before anything is sent to a target that cannot tell what it has; it may raise.
    """

    rate: float | None = None
    transform: str | None = None
    window: TimeWindow | None = None
    resume_at: Offset | None = None
    on_gap: Callable[[Gap], None] | None = None
    on_left_out: LeftOutReport | None = None
    before_send: Callable[[], None] | None = None


def find_target(arguments: ReplayArguments) -> StreamTarget | ExchangeTarget | None:
    """Return the target of a broker, None if a table was named. Raises InvalidInputError for a bad address or key."""
    key = None if arguments.routing_key is None else RoutingKey.parse(arguments.routing_key, "routing key")
    if arguments.to_exchange is not None:
        return ExchangeTarget(
            arguments.amqp_broker,
            arguments.to_exchange,
            routing_key=key or _PUBLISHED_KEY,
            default_key=arguments.default_key or "",
            progress=None if arguments.progress is None else Path(arguments.progress),
            allow_unroutable=arguments.allow_unroutable,
        )
    name = arguments.to_stream if arguments.to_super_stream is None else arguments.to_super_stream
    if name is None:
        return None
    BrokerAddress.from_uri(arguments.broker)
    if arguments.to_super_stream is not None:
        key = key or RoutingKey()
    return StreamTarget(arguments.broker, name, arguments.to_vhost or arguments.vhost, key, arguments.publisher)
