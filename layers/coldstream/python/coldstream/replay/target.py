"""Send a source to whichever target of a broker: a stream, a super stream or an exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from coldstream.errors import InvalidQueryError
from coldstream.live.address import BrokerAddress
from coldstream.replay.broker import BrokerReplayOptions, StreamTarget, replay_to_broker
from coldstream.replay.exchange import ExchangeTarget, replay_to_exchange
from coldstream.replay.request import ReplayRequest
from coldstream.replay.routing import RoutingKey
from coldstream.replay.summary import ReplayProgress, ReplaySummary
from coldstream.store.ports import ManifestReads, ObjectReads

BROKER = "rabbitmq-stream://guest:guest@localhost:5552"
AMQP_BROKER = "amqp://guest:guest@localhost:5672"
SUPER_STREAM_KEY = "properties.message_id"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked for: one of `stream`, `super_stream` and `exchange`, and how to get there."""

    vhost: str
    stream: str | None = None
    super_stream: str | None = None
    exchange: str | None = None
    broker: str = field(default=BROKER, repr=False)
    amqp_broker: str = field(default=AMQP_BROKER, repr=False)
    routing_key: str | None = None
    default_key: str | None = None
    publisher: str | None = None
    progress: str | None = None
    rate: float | None = None
    allow_unroutable: bool = False

    def target(self) -> StreamTarget | ExchangeTarget:
        """Return the target. Raises InvalidInputError where the parts do not go together."""
        if self.rate is not None and self.rate <= 0:
            raise InvalidQueryError("--rate", f"{self.rate} is not more than 0")
        self._refuse("--routing-key", self.routing_key, is_for=self.stream is None)
        for name, value in (("--default-key", self.default_key), ("--progress", self.progress)):
            self._refuse(name, value, is_for=self.exchange is not None)
        self._refuse("--allow-unroutable", self.allow_unroutable or None, is_for=self.exchange is not None)
        self._refuse("--publisher", self.publisher, is_for=self.exchange is None)
        key = None if self.routing_key is None else RoutingKey.parse(self.routing_key)
        if self.exchange is not None:
            target = ExchangeTarget(
                self.amqp_broker,
                self.exchange,
                default_key=self.default_key or "",
                progress=None if self.progress is None else Path(self.progress),
                allow_unroutable=self.allow_unroutable,
            )
            return target if key is None else replace(target, routing_key=key)
        BrokerAddress.from_uri(self.broker)
        if self.super_stream is not None:
            key = key or RoutingKey.parse(SUPER_STREAM_KEY)
            return StreamTarget(self.broker, self.super_stream, self.vhost, key, self.publisher)
        assert self.stream is not None
        return StreamTarget(self.broker, self.stream, self.vhost, publisher=self.publisher)

    @staticmethod
    def _refuse(name: str, value: object, *, is_for: bool) -> None:
        if value is not None and not is_for:
            raise InvalidQueryError(name, "is not for this target")


def send(
    table: ManifestReads,
    objects: ObjectReads,
    source: ReplayRequest,
    target: StreamTarget | ExchangeTarget,
    *,
    options: BrokerReplayOptions,
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ReplaySummary:
    """Publish a source, as `replay_to_broker` or `replay_to_exchange` do it."""
    if isinstance(target, ExchangeTarget):
        return replay_to_exchange(
            table, objects, source, target, options=options, on_progress=on_progress, should_stop=should_stop
        )
    return replay_to_broker(
        table, objects, source, target, options=options, on_progress=on_progress, should_stop=should_stop
    )
